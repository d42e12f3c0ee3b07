import { z } from 'zod';
import { storableText } from '../../floor/errors.ts';
import { type Operator, roles, signInMethods } from '../../floor/roles.ts';
import { auditKind, toAuditEntry } from '../../store/operators/audit-entry.ts';
import { moment } from '../assets/asset-search.ts';
import type { OperationsDeps } from '../deps.ts';
import { text, time } from '../fields.ts';
import { givenCursor, nextCursor, pageOf, positionOf, rowsOfPage } from '../pagination.ts';

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
  /** The id of the request in the log. */
  requestId: string;
  /** The code and the text of the problem, if the request was refused. */
  code?: string | undefined;
  reason?: string | undefined;
}

/** Maximum of kept entries of a list, and of kept fields of an object. */
const mostEntries = 50;

export const auditQuery = z.strictObject({
  q: text.optional().describe('Part of the name, subject, address, or of an id.'),
  action: text.optional().describe('Such as `pauseConnection`.'),
  outcome: z.enum(['done', 'refused']).optional(),
  since: moment.describe('Only entries from this date on, or from a time with its zone.'),
  until: moment.describe('Only entries before this date or time.'),
  cursor: givenCursor,
  limit: rowsOfPage(50),
});

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
    async auditLog(query: z.input<typeof auditQuery> = {}) {
      const { cursor, limit, ...filter } = auditQuery.parse(query);
      const before = positionOf(cursor, z.int());
      const rows = await store.audit.search({ ...filter, before, limit: limit + 1 });
      const page = pageOf(rows, limit, (last) => last.id);
      return { entries: page.rows.map(toAuditEntry) as ShownAuditEntry[], nextCursor: page.nextCursor };
    },

    /** Adds an entry to the audit log. */
    async audit({ action, operator, connectionId, assetId, ...rest }: AuditEntry) {
      const { subject, name, role, method } = operator ?? {};
      const by = operator ? { subject, name, role, method } : null;
      const outcome = rest.status < 400 ? 'done' : 'refused';
      await store.events.add({
        kind: auditKind(action),
        ...(connectionId !== undefined && { connectionId: storableText(connectionId) }),
        ...(assetId !== undefined && { assetId: storableText(assetId) }),
        data: kept({ by, outcome, ...rest }) as Record<string, unknown>,
      });
    },
  };
}

/** A value without secrets, long lists and long texts, and without what PostgreSQL does not store. */
function kept(value: unknown): unknown {
  if (typeof value === 'string') return storableText(value);
  if (Array.isArray(value)) return shortened(value.map(kept), (left) => `and ${left} more`);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).map(([name, field]) => [storableText(name), kept(field)] as const);
  return Object.fromEntries(shortened(fields, (left) => ['…', `and ${left} more`] as const));
}

const shortened = <T>(entries: T[], rest: (left: number) => T): T[] =>
  entries.length <= mostEntries ? entries : [...entries.slice(0, mostEntries), rest(entries.length - mostEntries)];
