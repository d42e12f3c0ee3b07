import { z } from 'zod';
import type { Connection } from '../store/schema.ts';
import { existingConnection } from './connections.ts';
import type { OperationsDeps } from './deps.ts';
import { Refused } from './refused.ts';
import { text } from './text.ts';
import { within } from './within.ts';

export const resyncRequest = z
  .strictObject({
    mode: z.enum(['incremental', 'full']),
    /** Epoch milliseconds. */
    since: z.int().min(0).optional(),
    companyId: text.optional(),
    projectId: text.optional(),
    assetType: text.optional(),
    assetIds: z.array(text).min(1).max(1000).optional(),
    /** What the listing lacks is gone, even when it is half of everything. */
    acceptGone: z.literal(true).optional(),
  })
  .refine(
    ({ mode, since, projectId, assetType, assetIds, acceptGone }) =>
      !acceptGone || (mode === 'full' && [since, projectId, assetType, assetIds].every((it) => it === undefined)),
    'acceptGone needs mode "full" and everything listed: no since, projectId, assetType or assetIds',
  )
  .meta({ id: 'ResyncRequest' });
export type ResyncRequest = z.infer<typeof resyncRequest>;

/** Over everything that a connection has: then the bucket is looked at, too. */
export function isWhole({ mode, acceptGone: _, ...part }: ResyncRequest): boolean {
  return mode === 'full' && Object.values(part).every((it) => it === undefined);
}

export function syncOperations({ store, queues }: Pick<OperationsDeps, 'store' | 'queues'>) {
  return {
    /** Asks for a run. The run is in the records when this returns, whatever becomes of the queue. */
    async resync(connectionId: string, request: ResyncRequest): Promise<{ syncId: string }> {
      const connection = await existingConnection(store, connectionId);
      if (connection.status !== 'active') {
        throw new Refused(409, `connection_${connection.status}`, stoppedText(connection));
      }
      const { mode, ...scope } = resyncRequest.parse(request);
      const syncId = await store.syncs.request(connectionId, mode, scope, { bucket: isWhole({ mode, ...scope }) });
      if (syncId === undefined)
        throw new Refused(409, 'connection_disconnected', stoppedText(await existingConnection(store, connectionId)));
      // When the queue is away, the dispatcher finds the run in the records.
      await within(2000, queues.addSync(connectionId)).catch(() => {});
      return { syncId };
    },

    async sync(id: string) {
      return store.syncs.get(id);
    },
  };
}

function stoppedText(connection: Connection): string {
  return connection.status === 'paused'
    ? 'The connection is paused. Resume it first.'
    : 'The connection is disconnected. Its user has to connect again: POST /api/connect-links makes the link.';
}
