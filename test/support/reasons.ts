import type { Reason } from '../../src/floor/reason-codes.ts';

/** Any reason. */
export const why: Reason = { code: 'error', text: 'why' };

export const byOperator: Reason = { code: 'disconnected_by_operator' };
