import { z } from 'zod';
import { combineReasons } from '../../floor/reasons.ts';
import { acceptNames, type Sync } from '../../store/database/schema.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, isoOf, isoTimes, reasonAnswer, shownReason, text, time } from '../fields.ts';
import { givenCursor, nextCursor, pageOf, positionOf, rowsOfPage } from '../pagination.ts';
import { Refused } from '../refused.ts';
import { activeConnection, existingConnection, notActive } from './connections.ts';
import { type NamesDeps, unknownNames, unknownNamesRefused } from './unknown-names.ts';

const syncModes = ['incremental', 'full'] as const;

/** What a sync is limited to, and which held changes it accepts. */
const scope = {
  since: z.iso.datetime({ offset: true }).optional().describe('Only uploads after this time.'),
  companyId: text.optional(),
  projectId: text.optional(),
  assetType: text.optional(),
  assetIds: z.array(text).min(1).max(1000).optional(),
  acceptGone: z.literal(true).optional().describe('Mark assets that the listing lacks as gone, however many.'),
  acceptReplaced: z
    .literal(true)
    .optional()
    .describe('Replace stored files by those that the library has now, however many.'),
  acceptRemoved: z
    .literal(true)
    .optional()
    .describe('Let GONE_RETENTION remove everything that is due now and is not listed again, however much.'),
};

const partNames = ['since', 'projectId', 'assetType', 'assetIds'] as const;

/** Whether a resync accepts changes that are held for an operator. */
export const acceptsChanges = (request: { [Name in (typeof acceptNames)[number]]?: true | undefined }) =>
  acceptNames.some((name) => request[name]);

/** Whether a resync lists only a part of a company. */
const isPartial = (request: { [Name in (typeof partNames)[number]]?: unknown }) =>
  partNames.some((name) => request[name] !== undefined);

export const resyncRequest = z
  .strictObject({
    mode: z.enum(syncModes),
    ...scope,
    since: z
      .union([z.iso.datetime({ offset: true }), z.int().min(0)])
      .optional()
      .describe('Only uploads after this time: ISO 8601, or epoch milliseconds as in the library.'),
  })
  .refine(
    (request) => !acceptsChanges(request) || (request.mode === 'full' && !isPartial(request)),
    'acceptGone, acceptReplaced and acceptRemoved need mode "full", without since, projectId, assetType and assetIds',
  )
  .meta({ id: 'ResyncRequest' });
export type ResyncRequest = z.infer<typeof resyncRequest>;

export const resyncAnswer = z.object({ syncId: z.string() }).meta({ id: 'ResyncAccepted' });

export const syncQuery = z.strictObject({
  connectionId: text.optional(),
  cursor: givenCursor,
  limit: rowsOfPage(50),
});

export const syncAnswer = z
  .object({
    id: z.string(),
    connectionId: z.string(),
    mode: z.enum(syncModes),
    scope: z.object(scope),
    status: z.enum(['waiting', 'running', 'done', 'failed']),
    pages: count,
    seen: count,
    new: count,
    changed: count,
    gone: count,
    verificationId: z
      .string()
      .nullable()
      .describe('Of a full sync that has ended: the verification that follows it. See /api/verify/{id}.'),
    error: z
      .string()
      .nullable()
      .describe('Why it failed; or, if it is done, what could not be read, and which companies are held.'),
    reason: reasonAnswer.nullable().describe('The same as a code with data.'),
    requestedAt: time,
    startedAt: time.nullable(),
    finishedAt: time.nullable(),
  })
  .meta({ id: 'Sync' });

export const syncList = z.object({ syncs: z.array(syncAnswer), nextCursor }).meta({ id: 'SyncList' });

/** A full sync without limits, which is followed by a verification. */
const isWhole = (request: ResyncRequest): boolean =>
  request.mode === 'full' && request.companyId === undefined && !isPartial(request);

/** @throws Refused 400 if a name in the scope is unknown */
async function refuseUnknown(deps: NamesDeps, connectionId: string, request: Partial<ResyncRequest>): Promise<void> {
  const named = (field: 'companyId' | 'projectId' | 'assetType') => ({
    field,
    list: `${field}s` as const,
    values: [request[field] ?? []].flat(),
  });
  const unknown = await unknownNames(deps, connectionId, [named('companyId'), named('projectId'), named('assetType')]);
  if (unknown.length > 0) throw unknownNamesRefused(unknown);
}

export function syncOperations(deps: Pick<OperationsDeps, 'store' | 'queues'> & NamesDeps) {
  const { store, queues } = deps;

  return {
    /** Requests a sync. It is in the database when this returns. */
    async resync(connectionId: string, request: ResyncRequest): Promise<{ syncId: string }> {
      await activeConnection(store, connectionId);
      const { mode, since, ...rest } = resyncRequest.parse(request);
      const limits = { ...rest, ...(since !== undefined && { since: Math.max(0, new Date(since).getTime()) }) };
      await refuseUnknown(deps, connectionId, limits);
      const syncId = await store.syncs.request(connectionId, mode, limits, { bucket: isWhole(request) });
      if (syncId === undefined) throw notActive(await existingConnection(store, connectionId));
      await queues.offerSyncs([connectionId]);
      return { syncId };
    },

    /** A page of syncs, newest first. */
    async syncs(query: z.input<typeof syncQuery> = {}) {
      const { cursor, limit, connectionId } = syncQuery.parse(query);
      if (connectionId !== undefined) await existingConnection(store, connectionId);
      const after = positionOf(cursor, z.object({ micros: z.int(), id: text }));
      const found = await store.syncs.search({ connectionId, after, limit: limit + 1 });
      const page = pageOf(found, limit, ({ micros, id }) => ({ micros, id }));
      return { syncs: page.rows.map(describeSync), nextCursor: page.nextCursor };
    },

    async sync(id: string) {
      const sync = await store.syncs.get(id);
      if (!sync) {
        throw new Refused(
          404,
          'sync_not_found',
          `There is no sync ${id}, or it is no longer kept. List them with \`asset-mirror syncs\`.`,
        );
      }
      return describeSync(sync);
    },
  };
}

function describeSync({ scope, error, held, ...sync }: Sync) {
  const reason = shownReason(combineReasons([error, held]));
  return {
    ...isoTimes(sync),
    scope: { ...scope, since: isoOf(scope.since ?? null) ?? undefined },
    error: reason?.text ?? null,
    reason,
  };
}
