import { whyDueAssetIsSkipped } from '../filters/apply-filters.ts';
import { Archived, Interrupted, Rejected, RetryLater, reasonOf } from '../floor/errors.ts';
import type { Reason, SkippedByFilter } from '../floor/reason-codes.ts';
import { reasonFields } from '../floor/reasons.ts';
import { type LeasedAsset, requireLease } from '../queue/leases.ts';
import { type AssetDetail, storable, versionOf, withoutLinks } from '../source/schemas.ts';
import { isIntact, measure } from '../storage/meter.ts';
import { databaseTime, note } from '../store/assets/history.ts';
import type { Media, SidecarStates } from '../store/database/schema.ts';
import { askLibrary, noteAnswer } from './ask-library.ts';
import type { MirrorDeps } from './deps.ts';
import { fenced } from './fenced-storage.ts';
import { initialSidecars, nextFollowUp } from './follow-up.ts';
import { dropUnfinishedVersion } from './keep-version.ts';
import { objectNameOf } from './media.ts';
import { isOriginalBack, mustTakeRendition } from './open-source.ts';
import { sidecarFilesOf, writeRecord } from './record.ts';
import { type Outcome, retryOrFail, stopsAsset } from './retry-or-fail.ts';
import { isSameFile, removeSuperseded } from './supersede.ts';
import { mirrorThumbnail, setThumbnail } from './thumbnail.ts';
import { transfer } from './transfer.ts';
import { forgetUpload } from './transfer-in-parts.ts';

/**
 * Turns one leased asset into a verified copy with a record, and returns the outcome. Each step may run again after a
 * crash: object keys are deterministic, and the record is written last.
 */
export async function mirrorAsset(all: MirrorDeps, leased: LeasedAsset): Promise<Outcome> {
  const deps = { ...all, storage: fenced(all.storage, leased) };
  try {
    if (deps.breaker.openReason !== undefined) throw new Interrupted(deps.breaker.openReason);
    const skipped = await whyDueAssetIsSkipped(deps, leased.asset);
    if (skipped) return await skipOrHandOver(deps, leased, skipped);

    const detail = await askLibrary(deps, leased);
    noteAnswer(leased, detail);
    if (detail.status === 'processing') return await waitForProcessing(deps, leased);
    if (detail.status === 'unavailable') return await endUnavailable(deps, leased);
    requireFile(detail);

    const startedAt = performance.now();
    const { media, isNew } = await storeMedia(deps, leased, detail);
    const isSame = isSameFile(leased.asset, media);
    const sidecars = await storeThumbnail(deps, leased, detail, media, isSame);
    const api = withoutLinks(detail);
    const hasSameBytes = isSame && leased.asset.media?.checksums.crc32 === media.checksums.crc32;
    const mirroredAt = (hasSameBytes && leased.asset.mirroredAt?.getTime()) || databaseTime(leased.lease);
    const recordKey = await writeRecord(deps, leased, { media, api, sidecars, mirroredAt });
    await removeSuperseded(deps, leased, media, [media.key, recordKey, sidecars.thumbnail?.key]);
    return await finish(deps, leased, { detail, media, isNew, sidecars, recordKey, startedAt });
  } catch (error) {
    return await endAfterError(deps, leased, error);
  }
}

/** Tries the asset again later, or lets it fail. If that is interrupted too, the asset is handed back. */
async function endAfterError(deps: MirrorDeps, leased: LeasedAsset, error: unknown): Promise<Outcome> {
  const ended = await retryOrFail(deps, leased, error);
  if (ended.outcome !== 'failed') return ended;
  try {
    return await fail(deps, leased, ended.reason, error);
  } catch (endError) {
    if (!(endError instanceof Interrupted)) throw endError;
    return await retryOrFail(deps, leased, endError);
  }
}

/** @throws Rejected if the answer has no link, and the status is not `ready` */
function requireFile({ status, download }: AssetDetail): void {
  if (status === 'ready' || download?.url || download?.mp4Url) return;
  throw new Rejected({ code: 'no_file', status: status ?? null });
}

/** The verified media file in the bucket: found there, or transferred. It is in the row when this returns. */
async function storeMedia(
  deps: MirrorDeps,
  leased: LeasedAsset,
  detail: AssetDetail,
): Promise<{ media: Media; isNew: boolean }> {
  const { asset, lease } = leased;
  // The lease has made a pending asset `transferring`.
  if (asset.state !== 'transferring') requireLease(await deps.store.assets.startTransfer(lease));
  const found = await findStored(deps, leased, detail);
  // The stored file is used, so the upload is not needed.
  if (found && asset.upload) await forgetUpload(deps, leased, asset.upload);
  if (found) await dropUnfinishedVersion(deps, leased);
  const media = found?.media ?? (await withHash(deps, leased, await transfer(deps, leased, detail)));
  const { bytes, variant, checksums } = media;
  note(lease, found ? 'found_in_bucket' : 'stored', { bytes, variant, checksums });
  requireLease(await deps.store.assets.saveMedia(lease, media, { isVerified: found?.isRead ?? true }));
  return { media, isNew: !found };
}

/**
 * Adds the content hash. If the upload could not compute it, the file is read back; an archived one stays without it until the scrub
 * can read it. @throws if other bytes are read back than were stored: the upload is dropped, and the file fetched again
 */
async function withHash(deps: MirrorDeps, leased: LeasedAsset, media: Media): Promise<Media> {
  const { signal } = leased;
  const { checksums, key } = media;
  if (!deps.storage.hashes || checksums.sha256) return media;
  const body = await deps.storage.get(key, { signal }).catch((error) => {
    if (error instanceof Archived) return 'archived' as const;
    throw error;
  });
  if (body === 'archived') return media;
  if (!body) throw new Error(`${key} was stored, but the bucket does not have it`);
  const { crc32, sha256 } = await measure(body, signal, { hashed: true });
  if (crc32 === checksums.crc32) return { ...media, checksums: { ...checksums, sha256: sha256! } };
  // The parts of the upload must not be used again.
  await dropUpload(deps, leased);
  throw new Error(`${key} was read back with CRC-32 ${crc32}, but ${checksums.crc32} was stored`);
}

/**
 * The media of this version if an earlier lease stored it, and the bucket still has it with the same length and ETag. Without an
 * ETag, or with another one, such as after a move to another bucket, it is read, and its content compared. A file that cannot be
 * read is fetched again, and so is a rendition whose original is back.
 */
async function findStored(
  deps: MirrorDeps,
  leased: LeasedAsset,
  detail: AssetDetail,
): Promise<{ media: Media; isRead: boolean } | undefined> {
  const { asset, signal } = leased;
  const { media } = asset;
  if (!media || media.version !== versionOf(detail)) return undefined;
  if (!mustTakeRendition(leased, detail) && (await isOriginalBack(deps, leased, detail, media))) return undefined;
  // Without a record, a file under an older name is stored again under its present one.
  if (media.key !== objectNameOf(deps.keyTemplate, asset, detail, media.variant).key && !asset.recordKey)
    return undefined;
  const object = await deps.storage.head(media.key, { signal });
  if (object?.bytes !== media.bytes) return undefined;
  if (media.etag !== null && object.etag === media.etag) return { media, isRead: false };
  if (media.etag !== null && object.archived) return undefined;
  const { crc32 = 'unknown' } = media.checksums;
  const isSame = await isIntact(deps.storage, media.key, crc32, { signal }).catch(async (error) => {
    signal.throwIfAborted();
    await deps.storage.check();
    const fields = { assetId: asset.id, key: media.key, reason: reasonOf(error) };
    deps.log.warn({ event: 'object.found_unreadable', ...fields }, 'stored object cannot be read, fetching it again');
    return false;
  });
  return isSame ? { media: { ...media, etag: object.etag ?? null }, isRead: true } : undefined;
}

/**
 * Stores the thumbnail, and returns the states of both sidecars: follow-up checks fetch a transcript, and a thumbnail that could not
 * be stored.
 */
async function storeThumbnail(
  deps: MirrorDeps,
  leased: LeasedAsset,
  detail: AssetDetail,
  media: Media,
  isSame: boolean,
): Promise<SidecarStates> {
  const { asset, lease, signal } = leased;
  const sidecars = initialSidecars(deps, leased, detail, isSame);
  if (sidecars.thumbnailState !== 'pending') return sidecars;
  const thumbnail = await mirrorThumbnail(deps, leased, detail, media.key).catch(async (error) => {
    if (stopsAsset(signal, error)) throw error;
    // The media does not wait for a thumbnail.
    if (error instanceof RetryLater) await deps.limiter.adaptTo(asset.connectionId, error);
    return undefined;
  });
  if (thumbnail) setThumbnail(sidecars, thumbnail);
  note(lease, 'thumbnail', { status: sidecars.thumbnailState });
  return sidecars;
}

/** Ends the lease of an asset whose record is written, and counts and logs it. */
async function finish(
  deps: MirrorDeps,
  leased: LeasedAsset,
  copy: {
    detail: AssetDetail;
    media: Media;
    isNew: boolean;
    sidecars: SidecarStates;
    recordKey: string;
    startedAt: number;
  },
): Promise<Outcome> {
  const { asset, lease } = leased;
  const { detail, media, isNew, sidecars, recordKey } = copy;
  const { key, bytes, variant } = media;
  requireLease(
    await deps.store.assets.mirrored(lease, {
      detail: storable(withoutLinks(detail)),
      recordKey,
      ...sidecars,
      sidecarFiles: sidecarFilesOf(sidecars, recordKey),
      waitMs: nextFollowUp(deps, leased, sidecars, detail, 0),
      followUps: 0,
    }),
  );
  const ms = Math.round(performance.now() - copy.startedAt);
  if (isNew) deps.metrics.transferSeconds.observe(ms / 1000);
  if (asset.mirroredAt === null && detail.uploadDate) {
    deps.metrics.freshnessSeconds.observe(Math.max(0, Date.now() - detail.uploadDate) / 1000);
  }
  const fields = { connectionId: asset.connectionId, assetId: asset.id, key, bytes, variant, ms };
  if (isNew) deps.log.info({ event: 'asset.mirrored', ...fields }, 'asset mirrored');
  else deps.log.info({ event: 'asset.found', ...fields }, 'asset found in bucket');
  return { outcome: 'mirrored' };
}

/** The connection's filters skip the asset: another connection that wants it gets it. */
async function skipOrHandOver(
  deps: MirrorDeps,
  leased: LeasedAsset,
  { reason, otherConnectionId }: { reason: SkippedByFilter; otherConnectionId: string | undefined },
): Promise<Outcome> {
  if (otherConnectionId !== undefined) {
    requireLease(await deps.store.assets.handOver(leased.lease, otherConnectionId));
    return { outcome: 'handed_over', reason };
  }
  await dropUpload(deps, leased);
  requireLease(await deps.store.assets.skip(leased.lease, reason));
  return { outcome: 'skipped', reason };
}

/**
 * Schedules the next check of a video that is still transcoding: after half the time so far, at most ten minutes but at least
 * `poll`, and never after the deadline.
 */
async function waitForProcessing(deps: MirrorDeps, leased: LeasedAsset): Promise<Outcome> {
  const { asset, lease } = leased;
  const { poll, giveUp } = deps.processing;
  const { processingSince } = asset;
  const elapsedMs = processingSince ? databaseTime(lease) - processingSince.getTime() : 0;
  if (elapsedMs >= giveUp)
    return fail(deps, leased, { code: 'still_processing', minutes: Math.round(elapsedMs / 60_000) });
  const waitMs = Math.min(Math.max(poll, Math.min(elapsedMs / 2, 10 * 60_000)), giveUp - elapsedMs);
  requireLease(await deps.store.assets.processing(lease, waitMs));
  return { outcome: 'processing', retryInMs: Math.round(waitMs) };
}

async function endUnavailable(deps: MirrorDeps, leased: LeasedAsset): Promise<Outcome> {
  const { media, mirroredAt } = leased.asset;
  if (media && mirroredAt) {
    // If the only copy is damaged, truncated or missing, that must stay visible.
    const object = await deps.storage.head(media.key, { signal: leased.signal });
    if (media.version === '' || object?.bytes !== media.bytes)
      return fail(deps, leased, { code: 'no_file', status: 'unavailable' });
  }
  await dropUpload(deps, leased);
  requireLease(await deps.store.assets.unavailable(leased.lease, { code: 'no_file', status: 'unavailable' }));
  deps.log.info({ event: 'asset.marked_unavailable', assetId: leased.asset.id }, 'asset marked unavailable');
  return { outcome: 'unavailable' };
}

async function fail(deps: MirrorDeps, leased: LeasedAsset, reason: Reason, err?: unknown): Promise<Outcome> {
  const { asset, lease } = leased;
  // Settings that changed meanwhile may skip it now: then it has not failed.
  const settings = (await deps.store.connections.get(asset.connectionId))?.settings ?? asset.settings;
  const skipped = await whyDueAssetIsSkipped(deps, { ...asset, settings });
  if (skipped) return skipOrHandOver(deps, leased, skipped);
  await dropUpload(deps, leased);
  requireLease(await deps.store.assets.failed(lease, reason));
  const fields = { connectionId: asset.connectionId, assetId: asset.id, attempts: asset.attempts + 1 };
  deps.log.warn({ event: 'asset.failed', ...fields, ...reasonFields(reason), err }, 'asset failed');
  return { outcome: 'failed', reason };
}

/** Ends an upload that any lease began. If the store refuses that now, the daily sweep of old uploads does it. */
async function dropUpload(deps: MirrorDeps, leased: LeasedAsset): Promise<void> {
  const asset = await deps.store.assets.get(leased.lease.assetId);
  // Otherwise it may be the upload of the next lease holder.
  requireLease(asset?.lease === leased.lease.number);
  if (!asset?.upload) return;
  await forgetUpload(deps, leased, asset.upload).catch((error) => {
    if (error instanceof Interrupted) throw error;
  });
}
