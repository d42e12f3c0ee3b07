import type { Event } from '../database/schema.ts';

/** The audit log is the events `operator.{action}`. */
const prefix = 'operator.';
export const auditKind = (action: string) => prefix + action;

/** An entry as the API and the bucket have it. */
export const toAuditEntry = ({ id, at, kind, connectionId, assetId, data }: Event) => ({
  id,
  at: at.toISOString(),
  action: kind.slice(prefix.length),
  connectionId,
  assetId,
  ...data,
});
