import type { Reason } from '../floor/reason-codes.ts';
import type { VerificationLine } from '../store/database/schema.ts';

/** What a comparison found about one object or asset. `moving`: it is being changed or removed, so a difference says nothing. */
export type Finding = (VerificationLine & { skipped?: boolean }) | 'moving';

/** The findings that are differences. */
export const differencesAmong = (findings: Finding[]): VerificationLine[] =>
  findings.filter((finding) => finding !== 'moving').filter(({ difference }) => difference);

/** A finding that is not about an object. */
export const verificationLine = (mark: VerificationLine['mark'], reason: Reason): VerificationLine => ({
  mark,
  key: null,
  assetId: null,
  kind: null,
  remedy: null,
  reason,
  difference: mark !== '=',
});
