import { z } from 'zod';
import { assetTypes } from '../source/schemas.ts';
import type { Sync } from '../store/database/schema.ts';
import { within } from '../within.ts';
import { existingConnection, stopped } from './connections.ts';
import type { OperationsDeps } from './deps.ts';
import { count, text, time } from './fields.ts';
import { nextCursor, pageOf, placeOf, rowsOfPage } from './pages.ts';
import { Refused } from './refused.ts';
import { strangeTypes } from './unknown-names.ts';

const syncModes = ['incremental', 'full'] as const;

/** What a run is limited to. */
const scope = {
  since: z.int().min(0).max(8.64e15).optional().describe('Uploads after this time only, epoch milliseconds.'),
  companyId: text.optional(),
  projectId: text.optional(),
  assetType: text.optional(),
  assetIds: z.array(text).min(1).max(1000).optional(),
  acceptGone: z
    .literal(true)
    .optional()
    .describe('What the listing lacks is gone, even when it is half of everything.'),
};

export const resyncRequest = z
  .strictObject({ mode: z.enum(syncModes), ...scope })
  .refine(
    ({ mode, since, projectId, assetType, assetIds, acceptGone }) =>
      !acceptGone || (mode === 'full' && [since, projectId, assetType, assetIds].every((it) => it === undefined)),
    'acceptGone needs mode "full" and everything listed: no since, projectId, assetType or assetIds',
  )
  .meta({ id: 'ResyncRequest' });
export type ResyncRequest = z.infer<typeof resyncRequest>;

export const resyncAnswer = z.object({ syncId: z.string() }).meta({ id: 'ResyncAccepted' });

export const syncQuery = z.strictObject({
  connectionId: text.optional(),
  cursor: text.optional(),
  limit: rowsOfPage(50),
});
export type SyncQuery = z.input<typeof syncQuery>;

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
      .describe('Once a full run has ended: the comparison of the bucket that comes behind it. See /api/verify/{id}.'),
    error: z.string().nullable().describe('Why it failed; or, when it is done, what of it could not be read.'),
    requestedAt: time,
    startedAt: time.nullable(),
    finishedAt: time.nullable(),
  })
  .meta({ id: 'Sync' });

export const syncList = z.object({ syncs: z.array(syncAnswer), nextCursor }).meta({ id: 'SyncList' });

/** Over everything that a connection has: then the bucket is looked at, too. */
export function isWhole({ mode, acceptGone: _, ...part }: ResyncRequest): boolean {
  return mode === 'full' && Object.values(part).every((it) => it === undefined);
}

export function syncOperations({ store, queues }: Pick<OperationsDeps, 'store' | 'queues'>) {
  async function knownType(type: string | undefined): Promise<void> {
    if (type === undefined || (await strangeTypes(store, [type])).length === 0) return;
    throw new Refused(
      400,
      'invalid_request',
      `assetType: nothing here is of the type ${type}; the library's types are ${assetTypes.join(', ')}.`,
    );
  }

  return {
    /** Asks for a run. The run is in the records when this returns, whatever becomes of the queue. */
    async resync(connectionId: string, request: ResyncRequest): Promise<{ syncId: string }> {
      const connection = await existingConnection(store, connectionId);
      if (connection.status !== 'active') throw stopped(connection);
      const { mode, ...scope } = resyncRequest.parse(request);
      await knownType(scope.assetType);
      const syncId = await store.syncs.request(connectionId, mode, scope, { bucket: isWhole({ mode, ...scope }) });
      if (syncId === undefined) throw stopped(await existingConnection(store, connectionId));
      // When the queue is away, the dispatcher finds the run in the records.
      await within(2000, queues.addSync(connectionId)).catch(() => {});
      return { syncId };
    },

    /** A page of runs, the newest first. */
    async syncs(query: SyncQuery = {}) {
      const { cursor, limit, connectionId } = syncQuery.parse(query);
      if (connectionId !== undefined) await existingConnection(store, connectionId);
      const after = placeOf(cursor, z.object({ micros: z.int(), id: text }));
      const found = await store.syncs.search({ connectionId, after, limit: limit + 1 });
      const page = pageOf(found, limit, ({ micros, id }) => ({ micros, id }));
      return { syncs: page.rows.map(describeSync), nextCursor: page.nextCursor };
    },

    async sync(id: string) {
      const sync = await store.syncs.get(id);
      if (!sync) {
        throw new Refused(404, 'sync_not_found', `There is no sync ${id}, or not any more. GET /api/syncs lists them.`);
      }
      return describeSync(sync);
    },
  };
}

const describeSync = (sync: Sync) => ({
  id: sync.id,
  connectionId: sync.connectionId,
  mode: sync.mode,
  scope: sync.scope,
  status: sync.status,
  pages: sync.pages,
  seen: sync.seen,
  new: sync.new,
  changed: sync.changed,
  gone: sync.gone,
  verificationId: sync.verificationId,
  error: sync.error,
  requestedAt: sync.requestedAt.toISOString(),
  startedAt: sync.startedAt?.toISOString() ?? null,
  finishedAt: sync.finishedAt?.toISOString() ?? null,
});
