import { z } from 'zod';
import { type Operator, roles, signInMethods } from '../roles.ts';
import { auditKind, toAuditEntry } from '../store/operators/audit-entry.ts';
import { moment } from './asset-search.ts';
import type { OperationsDeps } from './deps.ts';
import { text, time } from './fields.ts';
import { nextCursor, pageOf, positionOf, rowsOfPage } from './pagination.ts';

/** What an operator did, or tried to do. */
export interface AuditEntry {
  /** The operation of the API, or `signIn`, `signOut`. */
  action: string;
  /** Undefined: nobody could be identified. */
  operator: Operator | undefined;
  /** The IP address. */
  address: string;
  connectionId?: string | undefined;
  assetId?: string | undefined;
  /** The id of something else, such as a webhook endpoint. */
  targetId?: string | undefined;
  /** The body of the request. */
  request?: unknown;
  /** The changed values. */
  before?: unknown;
  after?: unknown;
  status: number;
  /** As in the log. */
  requestId: string;
  /** The code of the problem, and its text, if it was refused. */
  code?: string | undefined;
  reason?: string | undefined;
}

/** Longer values are not kept. */
const longestValue = 4000;

export const auditQuery = z.strictObject({
  q: text.optional().describe('Part of the name, subject, address, or of an id.'),
  action: text.optional().describe('Such as `pauseConnection`.'),
  outcome: z.enum(['done', 'refused']).optional(),
  since: moment.describe('A date, or a time with its zone.'),
  until: moment.describe('The same; not included.'),
  cursor: text.optional(),
  limit: rowsOfPage(50),
});
export type AuditQuery = z.input<typeof auditQuery>;

const value = z.unknown().optional();
const auditEntry = z
  .object({
    id: z.int(),
    at: time,
    action: z.string().describe('The operation of the API, or `signIn`, `signOut`.'),
    by: z
      .object({
        subject: z.string().describe('Identifies the account at the provider, or the token.'),
        name: z.string(),
        role: z.enum(roles),
        method: z.enum(signInMethods),
      })
      .nullable()
      .describe('null: nobody could be identified.'),
    address: z.string(),
    outcome: z.enum(['done', 'refused']),
    status: z.int(),
    code: z.string().optional(),
    reason: z.string().optional(),
    connectionId: z.string().nullable(),
    assetId: z.string().nullable(),
    targetId: z.string().optional(),
    request: value,
    before: value.describe('The values that changed, as they were.'),
    after: value.describe('The values that changed, as they are now.'),
    requestId: z.string(),
  })
  .meta({ id: 'AuditEntry' });
type ShownAuditEntry = z.infer<typeof auditEntry>;
export const auditList = z.object({ entries: z.array(auditEntry), nextCursor }).meta({ id: 'AuditList' });

export function auditOperations({ store }: Pick<OperationsDeps, 'store'>) {
  return {
    /** A page of the audit log, newest first. */
    async auditLog(query: AuditQuery = {}) {
      const { cursor, limit, ...filter } = auditQuery.parse(query);
      const before = positionOf(cursor, z.int());
      const rows = await store.audit.search({ ...filter, before, limit: limit + 1 });
      const page = pageOf(rows, limit, (last) => last.id);
      return { entries: page.rows.map(toAuditEntry) as ShownAuditEntry[], nextCursor: page.nextCursor };
    },

    /** Adds an entry to the audit log. */
    async audit({ action, operator, connectionId, assetId, request, before, after, ...rest }: AuditEntry) {
      const { subject, name, role, method } = operator ?? {};
      await store.events.add({
        kind: auditKind(action),
        ...(connectionId !== undefined && { connectionId }),
        ...(assetId !== undefined && { assetId }),
        data: {
          by: operator ? { subject, name, role, method } : null,
          outcome: rest.status < 400 ? 'done' : 'refused',
          ...rest,
          request: kept(request),
          before: kept(before),
          after: kept(after),
        },
      });
    },
  };
}

function kept(given: unknown): unknown {
  if (given === undefined || given === null) return undefined;
  return JSON.stringify(given).length <= longestValue ? given : 'too long to be kept';
}
