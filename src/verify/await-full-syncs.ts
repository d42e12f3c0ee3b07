import { setTimeout as sleep } from 'node:timers/promises';
import { renderReason } from '../floor/reasons.ts';
import type { Queues } from '../queue/queues.ts';
import type { Connection, VerificationLine } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { verificationLine } from './compare-objects.ts';

const pollMs = 200;
/** A full sync that makes no progress for this long is not waited for. */
const patienceMs = 30 * 60_000;

/** Full syncs, by connection. */
type SyncIds = Record<string, string>;

/**
 * Lists the library by a full sync of each connection, and waits until these end. Returns the problems.
 * `known`: syncs that were requested before a crash; `onRequested` saves them.
 */
export async function listLibrary(
  deps: { store: Store; queues: Pick<Queues, 'addSync'> },
  options: {
    connectionId: string | null;
    known: SyncIds;
    onRequested: (syncs: SyncIds) => Promise<void>;
    signal: AbortSignal;
  },
): Promise<VerificationLine[]> {
  const { store, queues } = deps;
  const { connectionId, signal } = options;
  const connections = (await store.connections.list()).filter(({ id }) => connectionId === null || id === connectionId);
  const syncs = { ...options.known };
  for (const connection of connections) {
    if (connection.status !== 'active') continue;
    const id = syncs[connection.id] ?? (await store.syncs.request(connection.id, 'full'));
    if (id === undefined) continue;
    syncs[connection.id] = id;
    await queues.addSync(connection.id).catch(() => {});
  }
  await options.onRequested(syncs);

  const problems: VerificationLine[] = [];
  for (const connection of connections) {
    const problem = await waitForSync(store, connection, syncs[connection.id], signal);
    if (problem) problems.push(verificationLine('!', problem));
  }
  return problems;
}

/** Returns what the sync did not compare, and why. Undefined: it has listed all. */
async function waitForSync(
  store: Store,
  connection: Connection,
  syncId: string | undefined,
  signal: AbortSignal,
): Promise<string | undefined> {
  const notCompared = (why: string) => `the library was not compared for connection ${connection.id}: ${why}`;
  let progress = { pages: -1, at: performance.now() };
  for (;;) {
    const sync = syncId === undefined ? undefined : await store.syncs.get(syncId);
    if (sync?.status === 'done') {
      const { error } = sync;
      return error === null
        ? undefined
        : `the library was not fully compared for connection ${connection.id}: ${renderReason(error)}`;
    }
    if (sync?.status === 'failed') return notCompared(sync.error ? renderReason(sync.error) : 'its full sync failed');
    const now = await store.connections.get(connection.id);
    if (!sync || now?.status !== 'active') return notCompared(`it is ${now?.status ?? 'gone'}`);
    if (sync.pages !== progress.pages) progress = { pages: sync.pages, at: performance.now() };
    if (performance.now() - progress.at > patienceMs) {
      return notCompared(`its full sync has made no progress for ${patienceMs / 60_000} minutes`);
    }
    await sleep(pollMs, undefined, { signal });
  }
}
