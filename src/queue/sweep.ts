import type { Timings } from '../floor/timings.ts';
import type { Store } from '../store/store.ts';
import type { Queues } from './queues.ts';

/** Assets that get another connection at once: a million would take minutes, in which nothing is dispatched. */
const adoptedAtOnce = 2000;

/**
 * Adds lost jobs and waiting syncs to the queue again, and gives the assets of connections that cannot work to others. Also adds up
 * the counts of assets. True: more assets may need another connection.
 */
export async function sweep(deps: { store: Store; queues: Queues; timings: Timings }): Promise<boolean> {
  const { store, queues } = deps;
  await store.counts.fold();
  await queues.addAssets(await store.assets.overdue(deps.timings.staleJob));
  await queues.addSyncs(await store.syncs.unattended(deps.timings.staleJob));
  return (await store.connections.adopt(adoptedAtOnce)) === adoptedAtOnce;
}
