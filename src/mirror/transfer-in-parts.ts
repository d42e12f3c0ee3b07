import { setTimeout as sleep } from 'node:timers/promises';
import { backoff } from '../floor/backoff.ts';
import { concurrently } from '../floor/concurrently.ts';
import {
  Disconnected,
  Interrupted,
  Rejected,
  RetryLater,
  StorageUnavailable,
  toReason,
  withMargin,
} from '../floor/errors.ts';
import { renderReason } from '../floor/reasons.ts';
import { type LeasedAsset, requireLease } from '../queue/leases.ts';
import { type Link, OtherVersion, type Pinned } from '../source/download.ts';
import { HttpError, isTemporary } from '../source/http.ts';
import { TooSlow } from '../source/min-rate.ts';
import { type Part, partLength, type Stored, smallestPart, UploadLost } from '../storage/storage.ts';
import { note } from '../store/assets/history.ts';
import type { AssetLease } from '../store/assets/leases.ts';
import type { Asset, UploadUnderWay } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { prepareReplacement } from './supersede.ts';

/**
 * Larger files go in parts, each of which is fetched, stored and verified alone. After a failed attempt smaller files do
 * so, too: the next attempt then resumes with the parts that this one stored.
 */
export const partsThreshold = ({ attempts }: Asset) => (attempts > 0 ? smallestPart : 32 * 2 ** 20);

/** Parts of one file that are transferred at a time. */
const atOnce = 4;
/** A part that fails is fetched again alone, up to this many times in all. */
const triesPerPart = 4;

/**
 * Transfers the missing parts of an upload, several at once, and completes it. An interrupted upload can be resumed:
 * its id is in the row, and the store lists its parts.
 * @throws UploadLost, OtherVersion (RangeRefused is one), or HttpError 404 or 410: then the upload is forgotten, with its parts, and
 *   another may begin
 */
export async function transferInParts(
  deps: MirrorDeps,
  leased: LeasedAsset,
  upload: UploadUnderWay,
  link: Link,
): Promise<Stored> {
  const { lease, signal } = leased;
  let done = new Map<number, Part>();
  let resumedParts = 0;
  try {
    done = await storedParts(deps, lease, upload, signal);
    resumedParts = done.size;
    if (resumedParts > 0) reportResumed(deps, lease, upload, done);
    const numbers = Array.from({ length: Math.max(1, Math.ceil(upload.bytes / upload.partBytes)) }, (_, i) => i + 1);
    const missing = numbers.filter((number) => !done.has(number));
    await moveParts(deps, leased, upload, link, missing, done);
    note(lease, 'parts_stored', { parts: missing.length, of: numbers.length });

    // A worker that has lost the lease completes nothing. It may also be suspended after the row has said that it has it.
    requireLease(await deps.store.assets.startTransfer(lease));
    await prepareReplacement(deps, leased, upload);
    await leased.fence();
    const parts = numbers.map((number) => done.get(number)!);
    return await deps.storage.uploads.complete(upload, parts, { signal });
  } catch (error) {
    // A file that no longer exists at this link may have another link. Requests for a part report this as HttpError, not as Missing.
    const gone = error instanceof HttpError && [404, 410].includes(error.status);
    if (gone || error instanceof OtherVersion || error instanceof UploadLost) await forgetUpload(deps, leased, upload);
    // An attempt that has stored a part made progress, so neither it nor a wait is counted: the next one resumes with that part.
    const isOther = [StorageUnavailable, RetryLater, UploadLost].some((kind) => error instanceof kind);
    const hasProgress = done.size > resumedParts;
    if (hasProgress) leased.asset.waits = 0;
    if (hasProgress && (error instanceof TooSlow || (!isOther && isTemporary(error)))) {
      const waitMs = error instanceof TooSlow ? 2 * error.windowMs : deps.timings.firstRetry;
      throw new RetryLater(toReason(error), withMargin(waitMs), { cause: error });
    }
    throw error;
  }
}

function reportResumed(deps: MirrorDeps, lease: AssetLease, upload: UploadUnderWay, done: Map<number, Part>): void {
  const bytes = [...done.values()].reduce((sum, part) => sum + part.bytes, 0);
  const { key, bytes: of } = upload;
  deps.log.info({ event: 'transfer.resumed', assetId: lease.assetId, key, bytes, of }, 'transfer resumed');
  note(lease, 'resumed', { variant: upload.variant, bytes, of: upload.bytes, parts: done.size });
  deps.metrics.resumedBytes.inc(bytes);
}

/** Ends an upload that will not be resumed. Nothing of it stays in the store. @throws Interrupted if the next lease holder may resume it */
export async function forgetUpload(
  { storage, store }: Pick<MirrorDeps, 'storage' | 'store'>,
  { lease, fence }: Pick<LeasedAsset, 'lease' | 'fence'>,
  upload: UploadUnderWay,
): Promise<void> {
  await fence();
  await storage.uploads.abort(upload);
  requireLease(await store.assets.saveUpload(lease, null));
}

/** The parts that the store has and whose checksums are in the database. */
async function storedParts(
  { store, storage }: MirrorDeps,
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
  // A process may have completed the upload and died before it saved that: `complete` finds out.
  const all = known.reduce((sum, { bytes }) => sum + bytes, 0) === upload.bytes;
  if (!all) throw new UploadLost(`the store no longer has the upload of ${upload.key}`);
  return byNumber(known);
}

/** Adds each part to `done` once it is stored. */
async function moveParts(
  deps: MirrorDeps,
  leased: LeasedAsset,
  upload: UploadUnderWay,
  link: Link,
  missing: number[],
  done: Map<number, Part>,
): Promise<void> {
  const failed = new AbortController();
  const signal = AbortSignal.any([leased.signal, failed.signal]);
  await concurrently(missing, atOnce, async (number) => {
    if (signal.aborted) return;
    try {
      const release = await deps.budget.take(partLength(upload, number), signal);
      try {
        done.set(number, await movePart(deps, { lease: leased.lease, upload, link, number, signal }));
      } finally {
        release();
      }
    } catch (error) {
      // Only the first error is reported. The others fail because of this abort.
      failed.abort(error);
    }
  });
  leased.signal.throwIfAborted();
  failed.signal.throwIfAborted();
}

async function movePart(
  deps: MirrorDeps,
  options: { lease: AssetLease; upload: UploadUnderWay; link: Link; number: number; signal: AbortSignal },
): Promise<Part> {
  const { lease, upload, link, number, signal } = options;
  const from = (number - 1) * upload.partBytes;
  const pinned: Pinned = { bytes: upload.bytes, etag: upload.etag, contentType: undefined };
  for (let tries = 1; ; tries++) {
    const body = deps.downloader.part(link, pinned, from, from + partLength(upload, number), signal);
    try {
      const part = await deps.outages.watch('links', () => deps.storage.uploads.put(upload, number, body, { signal }));
      requireLease(await deps.store.assets.savePart(lease, part));
      return part;
    } catch (error) {
      if (signal.aborted || tries === triesPerPart || !concernsOnlyPart(error)) throw error;
      const reason = toReason(error);
      const fields = { assetId: lease.assetId, part: number, reason: renderReason(reason) };
      deps.log.info({ event: 'part.retry_scheduled', ...fields }, 'part failed, will retry');
      note(lease, 'part_failed', { part: number, reason });
      await sleep(backoff(tries, 500, 4000), undefined, { signal });
    } finally {
      body.destroy();
    }
  }
}

/** Whether an error concerns this part alone, so that fetching it again may help. The downloader has retried the link already. */
function concernsOnlyPart(error: unknown): boolean {
  // The store answered 5xx to this part. The next try may succeed.
  if (error instanceof RetryLater) return error.reason.code === 'object_refused';
  const widerErrors = [
    HttpError,
    OtherVersion,
    UploadLost,
    Interrupted,
    Disconnected,
    Rejected,
    StorageUnavailable,
    TooSlow,
  ];
  return !widerErrors.some((kind) => error instanceof kind);
}
