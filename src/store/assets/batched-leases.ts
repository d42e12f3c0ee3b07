import { batched } from '../database/batch.ts';
import type { Database } from '../database/schema.ts';
import type { AssetLease, Mirrored } from './leases.ts';
import { endMirrored, endMirroredWithEvent } from './mirrored.ts';
import { takeAssets } from './take.ts';

/** The beginning and the usual end of a lease. Calls at the same moment share a statement. */
export function batchedLeases(db: Database) {
  const take = batched((asked: { id: string; leaseMs: number }[]) => takeAssets(db, asked));
  const end = batched((ends: { lease: AssetLease; done: Mirrored }[]) => endMirrored(db, ends));
  return {
    /**
     * Leases a queued asset for `leaseMs`. Undefined if another worker holds it or there is nothing to do; if its connection
     * may not work on it now, it leaves the queue.
     */
    take: (id: string, leaseMs: number) => take({ id, leaseMs }),

    /**
     * Ends the lease of an asset whose record is written. False if the worker had lost it. If a listing has changed the asset
     * since the lease began, it is due again: for the new file or, if only name or tags changed, for a new record.
     */
    mirrored: (lease: AssetLease, done: Mirrored) =>
      done.tell ? endMirroredWithEvent(db, { lease, done }, done.tell) : end({ lease, done }),
  };
}
