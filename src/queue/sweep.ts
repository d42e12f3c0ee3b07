import type { Store } from '../store/store.ts';
import type { Timings } from '../timings.ts';
import type { Queues } from './queues.ts';

/** Restored assets that get their connection in one statement. */
const adoptedAtOnce = 5000;

/** Finishes the work of processes that died: lost jobs, waiting syncs, restored assets. */
export async function sweep(
  deps: { store: Store; queues: Queues; timings: Timings },
  signal: AbortSignal,
): Promise<void> {
  const { store, queues } = deps;
  await store.counts.fold();
  await queues.addAssets(await store.assets.overdue(deps.timings.staleJob));
  for (const connectionId of await store.syncs.unattended()) await queues.addSync(connectionId);
  let adopted = adoptedAtOnce;
  while (adopted === adoptedAtOnce && !signal.aborted) adopted = await store.rebuild.adopt(adoptedAtOnce);
}
