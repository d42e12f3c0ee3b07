import { Rejected, RetryLater } from '../errors.ts';
import { skippedNow } from '../filters/apply-filters.ts';
import { skipReason } from '../filters/filters.ts';
import { type HeldAsset, Interrupted, mustHold } from '../queue/leases.ts';
import { type AssetDetail, storable, withoutLinks } from '../source/schemas.ts';
import { sidecarKeys } from '../storage/keys.ts';
import { measure } from '../storage/meter.ts';
import { databaseTime, note } from '../store/assets/history.ts';
import type { Asset, Media } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { fenced } from './fenced-storage.ts';
import { initialSidecars, nextFollowUp } from './follow-up.ts';
import { type Outcome, settle } from './outcome.ts';
import { keptOf, recordOf, sidecarsOf, writeRecord } from './record.ts';
import { keepThumbnail, mirrorThumbnail } from './thumbnail.ts';
import { placeOf, transferMedia, versionOf } from './transfer.ts';
import { forget } from './transfer-in-parts.ts';

/** Turns one asset into a verified copy with a record: ask the library, transfer, verify, write the record, finish. */
export async function mirrorAsset(all: MirrorDeps, held: HeldAsset): Promise<Outcome> {
  const deps = { ...all, storage: fenced(all.storage, held) };
  const { store } = deps;
  const { asset, lease, signal } = held;
  const assetId = asset.id;
  try {
    if (deps.breaker.open !== undefined) throw new Interrupted(deps.breaker.open);
    const skipped = await skippedNow(deps, asset);
    if (skipped) return await skip(deps, held, skipped);
    const read = () => deps.withToken(asset.connectionId, (token) => deps.client.getAsset({ token, assetId, signal }));
    const detail = await read();
    note(lease, 'asked', { status: detail.status ?? null });

    if (detail.status === 'processing') return await waitForProcessing(deps, held);
    if (detail.status === 'unavailable') {
      await dropUpload(deps, held);
      await store.assets.unavailable(lease, 'the service says that no file is attached');
      deps.log.info({ assetId }, 'asset unavailable');
      return { outcome: 'unavailable' };
    }
    if (detail.status !== 'ready' && !detail.download?.url && !detail.download?.mp4Url) {
      throw new Rejected(`the service gives it the status ${JSON.stringify(detail.status ?? null)} and no file`);
    }

    const started = performance.now();
    // A pending asset became `transferring` when its lease began.
    if (asset.state !== 'transferring') mustHold(await store.assets.startTransfer(lease));
    const superseded = new Set(asset.superseded);
    const stored = await alreadyStored(deps, asset, detail, signal);
    // The upload is of a version that was replaced by the one that is stored already.
    if (stored && asset.upload) await forget(deps, lease, asset.upload);
    const media =
      stored ??
      (await transferMedia(deps, {
        asset,
        lease,
        detail,
        renew: read,
        throttle: deps.lines.of(asset.connectionId),
        async onStart(key) {
          for (const old of await supersede(deps, held, key, versionOf(detail))) superseded.add(old);
        },
        signal,
      }));
    const { bytes, variant, checksums } = media;
    note(lease, stored ? 'found in the bucket' : 'stored', { bytes, variant, checksums });

    const sidecars = initialSidecars(deps, held, detail);
    if (asset.media?.version !== media.version || asset.media.key !== media.key) sidecars.thumbnail = null;
    mustHold(await store.assets.saveMedia(lease, media));
    if (sidecars.thumbnailState === 'pending') {
      const thumbnail = await mirrorThumbnail(deps, {
        detail,
        connectionId: asset.connectionId,
        key: media.key,
        signal,
      }).catch(passOn(deps, held));
      if (thumbnail) keepThumbnail(sidecars, thumbnail);
      note(lease, 'thumbnail', { status: sidecars.thumbnailState });
    }
    const api = withoutLinks(detail);
    const mirroredAt = new Date(databaseTime(lease));
    const record = await writeRecord(deps.storage, recordOf(asset, media, api, sidecars, mirroredAt), signal);
    sidecars.sidecarFiles[record.key] = keptOf(record);
    note(lease, 'recorded');
    await removeSuperseded(deps, superseded, [media.key, record.key, sidecars.thumbnail?.key], signal);
    const ended = await store.assets.mirrored(lease, {
      detail: storable(api),
      recordKey: record.key,
      ...sidecars,
      sidecarFiles: sidecarsOf(sidecars, record.key),
      tell: deps.tellMirrored && !stored ? media : undefined,
      waitMs: nextFollowUp(deps, held, sidecars, detail, 0),
    });
    mustHold(ended);
    const ms = Math.round(performance.now() - started);
    if (!stored) deps.metrics.transferSeconds.observe(ms / 1000);
    if (asset.mirroredAt === null && detail.uploadDate) {
      deps.metrics.freshnessSeconds.observe(Math.max(0, Date.now() - detail.uploadDate) / 1000);
    }
    deps.log.info(
      {
        connectionId: asset.connectionId,
        assetId,
        key: media.key,
        bytes: media.bytes,
        variant: media.variant,
        ms,
      },
      stored ? 'asset was in the bucket already' : 'asset mirrored',
    );
    return { outcome: 'mirrored' };
  } catch (error) {
    return await settle(deps, held, error, async (reason) => {
      // Settings that changed meanwhile may skip it now: then it has not failed.
      const settings = (await store.connections.get(asset.connectionId))?.settings ?? asset.settings;
      const skipped = await skippedNow(deps, { ...asset, settings });
      if (skipped) return skip(deps, held, skipped);
      await dropUpload(deps, held);
      await store.assets.failed(lease, reason);
      return { outcome: 'failed', reason };
    });
  }
}

/** Skipped by the connection's filter: goes to another connection that wants it, if there is one. */
async function skip(
  deps: MirrorDeps,
  held: HeldAsset,
  { rule, otherConnectionId }: { rule: string; otherConnectionId: string | undefined },
): Promise<Outcome> {
  const { store } = deps;
  if (otherConnectionId !== undefined) {
    await store.assets.handOver(held.lease, otherConnectionId);
    return { outcome: 'handed over', reason: `another connection mirrors it; here it is ${skipReason(rule)}` };
  }
  await dropUpload(deps, held);
  const reason = skipReason(rule);
  await store.assets.skip(held.lease, rule, reason);
  return { outcome: 'skipped', reason };
}

/** Ends an upload that an earlier lease began, so that nothing of it stays in the store. */
async function dropUpload(deps: MirrorDeps, { lease }: HeldAsset): Promise<void> {
  const upload = (await deps.store.assets.get(lease.assetId))?.upload;
  if (upload) await forget(deps, lease, upload);
}

/**
 * Prepares the replacement of a stored file, and returns the keys to remove once the new record is written. The worker may
 * die after each step, so the order matters: the row forgets the record and remembers the keys, then the record is removed,
 * then the bytes are written. So no record ever describes bytes that are not its own, and no key is forgotten.
 */
async function supersede(
  deps: MirrorDeps,
  { asset, lease }: HeldAsset,
  key: string,
  version: string,
): Promise<string[]> {
  const { media } = asset;
  if (!media) return [];
  const record = sidecarKeys.record(media.key);
  // The same file at the same key is a repair: its sidecars stay valid.
  const repaired = media.version === version && media.key === key;
  const others = [...(asset.transcriptKeys ?? []), ...(asset.thumbnail ? [asset.thumbnail.key] : [])];
  const superseded = repaired ? [] : [key, media.key, record, ...others];
  mustHold(await deps.store.assets.replace(lease, superseded));
  await deps.storage.remove(record);
  return superseded;
}

/** Removes the objects of superseded versions. Only once the new record is written. */
async function removeSuperseded(
  deps: MirrorDeps,
  superseded: Iterable<string>,
  inUse: (string | undefined)[],
  signal: AbortSignal,
): Promise<void> {
  for (const key of superseded) {
    signal.throwIfAborted();
    if (!inUse.includes(key)) await deps.storage.remove(key);
  }
}

/** Schedules the next check of a video that is still transcoding: after half the time so far, at most ten minutes. */
async function waitForProcessing(deps: MirrorDeps, held: HeldAsset): Promise<Outcome> {
  const { poll, giveUp } = deps.processing;
  const { processingSince } = held.asset;
  const lasts = processingSince ? databaseTime(held.lease) - processingSince.getTime() : 0;
  if (lasts >= giveUp) {
    const reason = `still processing ${Math.round(lasts / 60_000)} minutes after it was first seen`;
    await deps.store.assets.failed(held.lease, reason);
    return { outcome: 'failed', reason };
  }
  const waitMs = Math.min(Math.max(poll, Math.min(lasts / 2, 10 * 60_000)), giveUp - lasts);
  await deps.store.assets.processing(held.lease, waitMs);
  return { outcome: 'processing', retryInMs: Math.round(waitMs) };
}

/** The media of this version if an earlier lease stored it and the bucket still has exactly these bytes. */
async function alreadyStored(
  deps: MirrorDeps,
  asset: Asset,
  detail: AssetDetail,
  signal: AbortSignal,
): Promise<Media | undefined> {
  const { media } = asset;
  if (!media || media.version !== versionOf(detail)) return undefined;
  if (media.key !== placeOf(deps.keyTemplate, asset, detail, media.variant).key && !asset.recordKey) return undefined;
  const object = await deps.storage.head(media.key, { signal });
  if (object?.bytes !== media.bytes) return undefined;
  if (media.etag !== null) return object.etag === media.etag ? media : undefined;
  // Without ETags only the content itself tells.
  const body = await deps.storage.get(media.key, { signal });
  return body && (await measure(body, signal)).crc32 === media.checksums.crc32 ? media : undefined;
}

/** A thumbnail that fails is tried again later and holds nothing up; an abort is thrown. */
const passOn =
  (deps: MirrorDeps, { asset, signal }: HeldAsset) =>
  async (error: unknown): Promise<undefined> => {
    if (signal.aborted) throw error;
    if (error instanceof RetryLater) await deps.limiter.met(asset.connectionId, error);
    return undefined;
  };
