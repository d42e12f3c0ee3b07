import { setTimeout as sleep } from 'node:timers/promises';
import type { Reason } from '../floor/reason-codes.ts';
import type { Queues } from '../queue/queues.ts';
import type { Connection, VerificationLine } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { verificationLine } from './compare-objects.ts';

const pollMs = 200;
/** A full sync that makes no progress for this long is not waited for. */
const patienceMs = 30 * 60_000;

interface Deps {
  store: Store;
  queues: Pick<Queues, 'addSyncs'>;
}

/** The id of the full sync of each connection. */
type SyncIds = Record<string, string>;

/**
 * Lists the library by a full sync of each connection, and waits until these end. Returns the problems. Without `connectionId`,
 * connections that an operator has disconnected are omitted. `known`: syncs that were requested before a crash;
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
  const { store } = deps;
  const { connectionId, signal } = options;
  const connections = (await store.connections.list()).filter((connection) =>
    connectionId === null ? !isEndedByOperator(connection) : connection.id === connectionId,
  );
  const syncs = { ...options.known };
  for (const { id, status } of connections) {
    if (status !== 'active') continue;
    const syncId = syncs[id] ?? (await requestSync(deps, id));
    if (syncId !== undefined) syncs[id] = syncId;
  }
  await options.onRequested(syncs);

  const problems: VerificationLine[] = [];
  for (const connection of connections) {
    const problem = await waitForSync(deps, connection, syncs[connection.id], signal);
    if (problem) problems.push(verificationLine('!', problem));
  }
  return problems;
}

const isEndedByOperator = ({ status, lastError }: Connection) =>
  status === 'disconnected' && lastError?.code === 'disconnected_by_operator';

/** Undefined: the connection is no longer active. */
async function requestSync({ store, queues }: Deps, connectionId: string): Promise<string | undefined> {
  const id = await store.syncs.request(connectionId, 'full');
  if (id !== undefined) await queues.addSyncs([connectionId]).catch(() => {});
  return id;
}

/** Returns why the listing of a connection is not complete. Undefined: the sync has listed everything. */
async function waitForSync(
  deps: Deps,
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
  const { store } = deps;
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
      syncId = await requestSync(deps, connection.id);
      continue;
    }
    if (sync.pages !== progress.pages) progress = { pages: sync.pages, at: performance.now() };
    if (performance.now() - progress.at > patienceMs) {
      return notCompared({ status: 'stalled', minutes: patienceMs / 60_000 });
    }
    await sleep(pollMs, undefined, { signal });
  }
}
