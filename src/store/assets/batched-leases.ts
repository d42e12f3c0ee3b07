import { batched } from '../database/batch.ts';
import type { Database, Media } from '../database/schema.ts';
import type { AssetLease, Mirrored } from './leases.ts';
import { endMirrored } from './mirrored.ts';
import { takeAssets } from './take-lease.ts';
import { saveMedia } from './transfers.ts';

/** The usual steps of a lease: it begins, the media is saved, it ends. Calls at the same moment share a statement. */
export function batchedLeases(db: Database) {
  const take = batched((requests: { id: string; leaseMs: number }[]) => takeAssets(db, requests));
  const save = batched((saves: { lease: AssetLease; media: Media; isVerified: boolean }[]) => saveMedia(db, saves));
  const end = batched((ends: { lease: AssetLease; done: Mirrored }[]) => endMirrored(db, ends));
  return {
    /**
     * Leases a queued asset for `leaseMs`. Undefined if another worker holds it or there is nothing to do; if its connection
     * may not work on it now, it leaves the queue.
     */
    take: (id: string, leaseMs: number) => take({ id, leaseMs }),

    /** Saves the media that was stored and checked. False if the worker had lost its lease. */
    saveMedia: (lease: AssetLease, media: Media, options: { isVerified: boolean }) =>
      save({ lease, media, ...options }),

    /**
     * Ends the lease of an asset whose record is written. False if the worker had lost it. If a listing has changed the asset
     * since the lease began, it is due again: for the new file or, if only name or tags changed, for a new record.
     */
    mirrored: (lease: AssetLease, done: Mirrored) => end({ lease, done }),
  };
}
