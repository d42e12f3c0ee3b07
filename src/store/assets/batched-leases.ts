import { batched } from '../database/batch.ts';
import type { Database } from '../database/schema.ts';
import type { AssetLease, Mirrored } from './leases.ts';
import { endMirrored, endMirroredWithEvent } from './mirrored.ts';
import { takeAssets } from './take.ts';

/** How leases begin and end; calls at the same moment share a statement. */
export function batchedLeases(db: Database) {
  const take = batched((asked: { id: string; leaseMs: number }[]) => takeAssets(db, asked));
  const end = batched((ends: { lease: AssetLease; done: Mirrored }[]) => endMirrored(db, ends));
  return {
    /**
     * The next lease at an asset whose job came off the queue; undefined when there is nothing to do, or not by us.
     * What may not be worked on at present leaves the queue, and makes room. What was pending is on its way from here on.
     */
    take: (id: string, leaseMs: number) => take({ id, leaseMs }),

    /**
     * The record is written, and the lease ends. False if it was not ours any more. A listing that saw another version since
     * the lease began makes the asset pending again; one that saw another name or tags, due for a new record.
     */
    mirrored: (lease: AssetLease, done: Mirrored) =>
      done.tell ? endMirroredWithEvent(db, { lease, done }, done.tell) : end({ lease, done }),
  };
}
