import { setTimeout as sleep } from 'node:timers/promises';
import { Disconnected, Rejected, RetryLater, reasonOf, StorageUnavailable, withMargin } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Budget } from '../pacing/byte-budget.ts';
import { Interrupted, mustHold } from '../queue/leases.ts';
import { CannotGoOn, type Downloader, type Link, OtherVersion, type Pinned } from '../source/download.ts';
import { HttpError } from '../source/http.ts';
import { TooSlow } from '../source/min-rate.ts';
import { type Part, partLength, type Storage, type Stored, smallestPart, UploadLost } from '../storage/storage.ts';
import { note } from '../store/assets/history.ts';
import type { AssetLease } from '../store/assets/leases.ts';
import type { Asset, UploadUnderWay } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';

/**
 * Files of more than this go in parts, each of which is fetched, stored and proven alone. After a failed attempt smaller
 * files do so, too: the next attempt then continues with what this one stored.
 */
export const inPartsFrom = ({ attempts }: Asset) => (attempts > 0 ? smallestPart : 32 * 2 ** 20);

/** Parts of one file at a time. */
const atOnce = 4;
/** A part that fails is fetched again alone, so often in all. */
const triesPerPart = 4;

export interface PartsDeps {
  store: Store;
  storage: Storage;
  downloader: Downloader;
  budget: Budget;
  log: Log;
  metrics: Metrics;
}

/** The server said that it can give the file in pieces of one version, and has given none. */
export class NotInParts extends Error {
  override readonly name = 'NotInParts';
}

/**
 * Moves the parts that the store has not yet, several at once, and completes the upload. Whatever ends this in the middle
 * leaves the upload to be gone on with: its id is in the row, and of its parts the store's own list is the truth.
 * @throws UploadLost, OtherVersion or NotInParts when it cannot be gone on with: the upload is gone then, and another may begin
 */
export async function moveInParts(
  deps: PartsDeps,
  options: {
    lease: AssetLease;
    upload: UploadUnderWay;
    link: Link;
    /** Called before the object appears at its key. */
    onComplete: () => Promise<void>;
    signal: AbortSignal;
  },
): Promise<Stored> {
  const { storage, log } = deps;
  const { lease, upload, signal } = options;
  let done = new Map<number, Part>();
  let resumedParts = 0;
  try {
    done = await storedParts(deps, lease, upload, signal);
    resumedParts = done.size;
    if (done.size > 0) {
      const bytes = [...done.values()].reduce((sum, part) => sum + part.bytes, 0);
      log.info({ assetId: lease.assetId, key: upload.key, bytes, of: upload.bytes }, 'transfer goes on');
      note(lease, 'went on', { variant: upload.variant, bytes, of: upload.bytes, parts: done.size });
      deps.metrics.resumedBytes.inc(bytes);
    }
    const count = Math.max(1, Math.ceil(upload.bytes / upload.partBytes));
    const missing = Array.from({ length: count }, (_, i) => i + 1).filter((number) => !done.has(number));
    await movePartsOf(deps, { ...options, missing, done });

    note(lease, 'parts stored', { parts: missing.length, of: count });
    // The fence: who has lost the lease completes nothing.
    await options.onComplete();
    signal.throwIfAborted();
    const parts = Array.from({ length: count }, (_, i) => done.get(i + 1)!);
    return await storage.uploads.complete(upload, parts, { signal });
  } catch (error) {
    // A file that is not there any more may be there in another way.
    const gone = error instanceof HttpError && [404, 410].includes(error.status);
    if (gone || error instanceof OtherVersion || error instanceof UploadLost) await forget(deps, lease, upload);
    // Each attempt that stores a part brings the file nearer to its end, so it costs none.
    if (error instanceof TooSlow && done.size > resumedParts) {
      throw new RetryLater(error.message, withMargin(2 * error.windowMs));
    }
    if (error instanceof CannotGoOn && done.size === 0) throw new NotInParts(error.message, { cause: error });
    throw error;
  }
}

/** Ends an upload that nobody will go on with; nothing of it stays in the store. */
export async function forget(
  { storage, store }: Pick<PartsDeps, 'storage' | 'store'>,
  lease: AssetLease,
  upload: UploadUnderWay,
): Promise<void> {
  await storage.uploads.abort(upload);
  mustHold(await store.assets.saveUpload(lease, null));
}

/** What the store has, as far as the records know its checksums. */
async function storedParts(
  { store, storage }: PartsDeps,
  lease: AssetLease,
  upload: UploadUnderWay,
  signal: AbortSignal,
): Promise<Map<number, Part>> {
  const known = await store.assets.parts(lease.assetId);
  if (known.length === 0) return new Map();
  const byNumber = (parts: Part[]) => new Map(parts.map((part) => [part.number, part]));
  const there = await storage.uploads.list(upload, { signal });
  if (there) {
    return byNumber(
      known.filter(({ number, bytes, etag }) => {
        const part = there.get(number);
        return part?.bytes === bytes && part.etag === etag && bytes === partLength(upload, number);
      }),
    );
  }
  // Completed, perhaps, by a process that died before it could say so: `complete` finds out.
  const all = known.reduce((sum, { bytes }) => sum + bytes, 0) === upload.bytes;
  if (!all) throw new UploadLost(`the store knows the upload of ${upload.key} no more`);
  return byNumber(known);
}

async function movePartsOf(
  deps: PartsDeps,
  options: {
    lease: AssetLease;
    upload: UploadUnderWay;
    link: Link;
    missing: number[];
    done: Map<number, Part>;
    signal: AbortSignal;
  },
): Promise<void> {
  const { upload, missing, done } = options;
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  const next = missing.values();
  const lane = async () => {
    for (const number of next) {
      const release = await deps.budget.take(partLength(upload, number), signal);
      try {
        done.set(number, await movePart(deps, { ...options, number, signal }));
      } finally {
        release();
      }
    }
  };
  const lanes = Array.from({ length: Math.min(atOnce, missing.length) }, () =>
    lane().catch((error) => {
      // The first to fail says why; the others are only told to stop.
      failed.abort(error);
      throw error;
    }),
  );
  await Promise.allSettled(lanes);
  options.signal.throwIfAborted();
  failed.signal.throwIfAborted();
}

async function movePart(
  deps: PartsDeps,
  options: { lease: AssetLease; upload: UploadUnderWay; link: Link; number: number; signal: AbortSignal },
): Promise<Part> {
  const { lease, upload, link, number, signal } = options;
  const from = (number - 1) * upload.partBytes;
  const pinned: Pinned = { bytes: upload.bytes, etag: upload.etag, contentType: undefined };
  for (let tries = 1; ; tries++) {
    const body = deps.downloader.part(link, pinned, from, from + partLength(upload, number), signal);
    try {
      const part = await deps.storage.uploads.put(upload, number, body, { signal });
      mustHold(await deps.store.assets.savePart(lease, part));
      return part;
    } catch (error) {
      if (signal.aborted || tries === triesPerPart || !isOwn(error)) throw error;
      const reason = reasonOf(error);
      deps.log.info({ assetId: lease.assetId, part: number, reason }, 'part failed; fetched again');
      note(lease, 'part failed', { part: number, reason });
      await sleep(500 * 2 ** tries * (1 + Math.random() / 4), undefined, { signal });
    } finally {
      body.destroy();
    }
  }
}

/** Whether an error is this part's alone, and not everyone's or the file's. What a link answers has been asked twice. */
function isOwn(error: unknown): boolean {
  const others = [
    HttpError,
    OtherVersion,
    UploadLost,
    Interrupted,
    Disconnected,
    Rejected,
    RetryLater,
    StorageUnavailable,
    TooSlow,
  ];
  return !others.some((kind) => error instanceof kind);
}
