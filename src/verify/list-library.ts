import { setTimeout as sleep } from 'node:timers/promises';
import type { Reason } from '../floor/reason-codes.ts';
import type { Queues } from '../queue/queues.ts';
import type { Connection, VerificationLine } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { verificationLine } from './finding.ts';

const pollMs = 200;
/** A full sync that makes no progress for this long is not waited for. */
const patienceMs = 30 * 60_000;

interface Deps {
  store: Store;
  queues: Pick<Queues, 'offerSyncs'>;
}

/** The id of the full sync of each connection. */
type SyncIds = Record<string, string>;

/**
 * Lists the library by a full sync of each connection, and waits until these end. Returns the problems. Without `connectionId`,
 * connections that an operator has disconnected are omitted. If nobody has ever connected, that is a problem. `known`: syncs that were requested before a crash;
 * `onRequested` saves them.
 */
export async function listLibrary(
  deps: Deps,
  options: {
    connectionId: string | null;
    known: SyncIds;
    onRequested: (syncs: SyncIds) => Promise<void>;
    signal: AbortSignal;
  },
): Promise<VerificationLine[]> {
  const { store, queues } = deps;
  const { connectionId, signal } = options;
  const everConnected = await store.connections.list();
  const connections = everConnected.filter((connection) =>
    connectionId === null ? !isEndedByOperator(connection) : connection.id === connectionId,
  );
  const syncs = { ...options.known };
  for (const { id, status } of connections) {
    if (status !== 'active') continue;
    // Undefined: it is no longer active.
    const syncId = syncs[id] ?? (await store.syncs.request(id, 'full'));
    if (syncId !== undefined) syncs[id] = syncId;
  }
  await options.onRequested(syncs);
  await queues.offerSyncs(Object.keys(syncs));

  const problems: VerificationLine[] = [];
  if (everConnected.length === 0) {
    problems.push(verificationLine('!', { code: 'library_not_compared', connectionId: null, status: 'not_connected' }));
  }
  for (const connection of connections) {
    const problem = await waitForSync(deps, connection, syncs[connection.id], signal);
    if (problem) problems.push(verificationLine('!', problem));
  }
  return problems;
}

const isEndedByOperator = ({ status, lastError }: Connection) =>
  status === 'disconnected' && lastError?.code === 'disconnected_by_operator';

/** Returns why the listing of a connection is not complete. Undefined: the sync has listed everything. */
async function waitForSync(
  { store, queues }: Deps,
  connection: Connection,
  requested: string | undefined,
  signal: AbortSignal,
): Promise<Reason | undefined> {
  const notCompared = (
    why: Omit<Extract<Reason, { code: 'library_not_compared' }>, 'code' | 'connectionId'>,
  ): Reason => ({
    code: 'library_not_compared',
    connectionId: connection.id,
    ...why,
  });
  let syncId = requested;
  let progress = { pages: -1, at: performance.now() };
  for (;;) {
    const sync = syncId === undefined ? undefined : await store.syncs.get(syncId);
    const reason = sync?.error ? { reason: sync.error } : {};
    if (sync?.status === 'done') return sync.error ? notCompared({ status: 'incomplete', ...reason }) : undefined;
    if (sync?.status === 'failed') return notCompared({ status: 'failed', ...reason });
    const now = await store.connections.get(connection.id);
    if (now?.status !== 'active') return notCompared({ status: now?.status ?? 'gone' });
    if (!sync) {
      // It was pruned, or the connection was not active when it should have been requested.
      syncId = await store.syncs.request(connection.id, 'full');
      await queues.offerSyncs([connection.id]);
      continue;
    }
    if (sync.pages !== progress.pages) progress = { pages: sync.pages, at: performance.now() };
    if (performance.now() - progress.at > patienceMs) {
      return notCompared({ status: 'stalled', minutes: patienceMs / 60_000 });
    }
    await sleep(pollMs, undefined, { signal });
  }
}
