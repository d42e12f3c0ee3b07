import { Rejected, RetryLater } from '../errors.ts';
import { type AssetDetail, storable, withoutLinks } from '../source/answers.ts';
import { beside } from '../storage/keys.ts';
import { measure } from '../storage/meter.ts';
import { note } from '../store/happenings.ts';
import type { Asset, Media } from '../store/schema.ts';
import { artefactsAtFirst, nextLook } from './artefacts.ts';
import type { MirrorDeps } from './deps.ts';
import { fenced } from './fenced.ts';
import { forget, inPartsFrom } from './in-parts.ts';
import { type Outcome, settle } from './outcome.ts';
import { besideOf, keptOf, recordOf, writeRecord } from './record.ts';
import { leftOutNow } from './reselect.ts';
import { leftOutReason } from './selection.ts';
import { keepThumbnail, mirrorThumbnail } from './thumbnail.ts';
import { placeOf, transferMedia, versionOf } from './transfer.ts';
import { type HeldAsset, Interrupted } from './turns.ts';

/** One asset, from its name to a checked copy with a record: ask, look at its status, move, verify, record, mark. */
export async function mirrorAsset(all: MirrorDeps, held: HeldAsset): Promise<Outcome> {
  const deps = { ...all, storage: fenced(all.storage, held) };
  const { store } = deps;
  const { asset, turn, signal } = held;
  const assetId = asset.id;
  let unsaved: Media | undefined;
  try {
    if (deps.gate.closed !== undefined) throw new Interrupted(deps.gate.closed);
    const leftOut = await leftOutNow(deps, asset);
    if (leftOut) return await leaveOut(deps, held, leftOut);
    const read = () => deps.withToken(asset.connectionId, (token) => deps.client.getAsset({ token, assetId, signal }));
    const detail = await read();
    note(turn, 'asked', { status: detail.status ?? null });

    if (detail.status === 'processing') return await waitForProcessing(deps, held);
    if (detail.status === 'unavailable') {
      await dropUpload(deps, held);
      await store.assets.unavailable(turn, 'the service says that no file is attached');
      deps.log.info({ assetId }, 'asset unavailable');
      return { outcome: 'unavailable' };
    }
    if (detail.status !== 'ready' && !detail.download?.url && !detail.download?.mp4Url) {
      throw new Rejected(`the service gives it the status ${JSON.stringify(detail.status ?? null)} and no file`);
    }

    const started = Date.now();
    // What was pending became so when its turn began.
    if (asset.state !== 'transferring') still(await store.assets.startTransfer(turn));
    const outdated = new Set(asset.outdated);
    const stored = await alreadyStored(deps, asset, detail, signal);
    // Begun for a version that is no more, now that the one before it is back.
    if (stored && asset.upload) await forget(deps, turn, asset.upload);
    const media =
      stored ??
      (await transferMedia(deps, {
        asset,
        turn,
        detail,
        renew: read,
        throttle: deps.lines.of(asset.connectionId),
        async onStart(key) {
          for (const old of await giveWay(deps, held, key, versionOf(detail))) outdated.add(old);
        },
        signal,
      }));
    const { bytes, variant, checksums } = media;
    note(turn, stored ? 'found in the bucket' : 'stored', { bytes, variant, checksums });

    const artefacts = artefactsAtFirst(deps, asset, detail);
    if (asset.media?.version !== media.version || asset.media.key !== media.key) artefacts.thumbnail = null;
    // Of a small file the records hear together with all the rest, unless that takes its time.
    const now = media.bytes > inPartsFrom || artefacts.thumbnailState === 'pending';
    if (now) still(await store.assets.saveMedia(turn, media));
    else unsaved = media;
    if (artefacts.thumbnailState === 'pending') {
      const thumbnail = await mirrorThumbnail(deps, {
        detail,
        connectionId: asset.connectionId,
        key: media.key,
        signal,
      }).catch(passOn(deps, held));
      if (thumbnail) keepThumbnail(artefacts, thumbnail);
      note(turn, 'thumbnail', { status: artefacts.thumbnailState });
    }
    const api = withoutLinks(detail);
    const record = await writeRecord(deps.storage, recordOf(asset, media, api, artefacts, new Date()), signal);
    artefacts.beside[record.key] = keptOf(record);
    note(turn, 'recorded');
    await removeOutdated(deps, outdated, [media.key, record.key, artefacts.thumbnail?.key], signal);
    await held.mirrored({
      detail: storable(api),
      recordKey: record.key,
      ...artefacts,
      beside: besideOf(artefacts, record.key),
      media: unsaved,
      tell: deps.tellMirrored && !stored ? media : undefined,
      nextAt: nextLook(deps, artefacts, detail, 0),
    });
    const ms = Date.now() - started;
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
    if (unsaved) await store.assets.saveMedia(turn, unsaved).catch(() => {});
    return await settle(deps, held, error, async (reason) => {
      // What has come to be left out meanwhile was left to this turn, and has not failed anybody.
      const settings = (await store.connections.get(asset.connectionId))?.settings ?? asset.settings;
      const leftOut = await leftOutNow(deps, { ...asset, settings });
      if (leftOut) return leaveOut(deps, held, leftOut);
      await dropUpload(deps, held);
      await store.assets.failed(turn, reason);
      return { outcome: 'failed', reason };
    });
  }
}

/** The settings leave it out: another connection mirrors it that wants it, or nobody does. */
async function leaveOut(
  deps: MirrorDeps,
  held: HeldAsset,
  { rule, heir }: { rule: string; heir: string | undefined },
): Promise<Outcome> {
  const { store } = deps;
  if (heir !== undefined) {
    await store.assets.handOver(held.turn, heir);
    return { outcome: 'handed over', reason: `another connection mirrors it; here it is ${leftOutReason(rule)}` };
  }
  await dropUpload(deps, held);
  const reason = leftOutReason(rule);
  await store.assets.leaveOut(held.turn, rule, reason);
  return { outcome: 'left out', reason };
}

/** What was begun of a file that is given up leaves nothing in the store. */
async function dropUpload(deps: MirrorDeps, { turn }: HeldAsset): Promise<void> {
  const upload = (await deps.store.assets.get(turn.assetId))?.upload;
  if (upload) await forget(deps, turn, upload);
}

/**
 * Before the first byte of a file that takes the place of another. In this order, for the worker may die behind each step:
 * the row first forgets the record and remembers the keys; then the record goes, while what it describes is still there;
 * then the bytes. So no record ever describes bytes that are not its own, the row claims none that is gone, and until the
 * new record is written any later turn finds in the row what is to be cleared away.
 */
async function giveWay(deps: MirrorDeps, { asset, turn }: HeldAsset, key: string, version: string): Promise<string[]> {
  const { media } = asset;
  if (!media) return [];
  const record = beside.record(media.key);
  // The same file in the same place, because it was lost there: what lies beside it is still its own.
  const repaired = media.version === version && media.key === key;
  const others = [...(asset.transcriptKeys ?? []), ...(asset.thumbnail ? [asset.thumbnail.key] : [])];
  const outdated = repaired ? [] : [key, media.key, record, ...others];
  still(await deps.store.assets.replace(turn, outdated));
  await deps.storage.remove(record);
  return outdated;
}

/** The new record is written: what other versions of the asset have left goes, unless this one has it, too. */
async function removeOutdated(
  deps: MirrorDeps,
  outdated: Iterable<string>,
  inUse: (string | undefined)[],
  signal: AbortSignal,
): Promise<void> {
  for (const key of outdated) {
    signal.throwIfAborted();
    if (!inUse.includes(key)) await deps.storage.remove(key);
  }
}

/** Every write is refused once another worker has the turn: then what this one does counts for nothing, and it stops. */
function still(held: boolean): void {
  if (!held) throw new Interrupted('another worker has the asset');
}

/** The next look at a video that is still transcoding: after a half of the time it has taken so far, up to ten minutes. */
async function waitForProcessing(deps: MirrorDeps, held: HeldAsset): Promise<Outcome> {
  const { poll, giveUp } = deps.processing;
  const now = Date.now();
  const since = held.asset.processingSince?.getTime() ?? now;
  const deadline = since + giveUp;
  if (now >= deadline) {
    const reason = `still processing ${Math.round((now - since) / 60_000)} minutes after it was first seen`;
    await deps.store.assets.failed(held.turn, reason);
    return { outcome: 'failed', reason };
  }
  const wait = Math.max(poll, Math.min((now - since) / 2, 10 * 60_000));
  const at = new Date(Math.min(now + wait, deadline));
  await deps.store.assets.processing(held.turn, at);
  return { outcome: 'processing', at };
}

/** The media of this very version, if an earlier turn has stored it and it is still there, byte for byte. */
async function alreadyStored(
  deps: MirrorDeps,
  asset: Asset,
  detail: AssetDetail,
  signal: AbortSignal,
): Promise<Media | undefined> {
  const { media } = asset;
  if (!media || media.version !== versionOf(detail)) return undefined;
  if (media.key !== placeOf(deps.keyTemplate, asset.companyId, detail, media.variant).key && !asset.recordKey)
    return undefined;
  const object = await deps.storage.head(media.key, { signal });
  if (object?.bytes !== media.bytes) return undefined;
  if (media.etag !== null) return object.etag === media.etag ? media : undefined;
  // A store without ETags says nothing of the content, so that is read.
  const body = await deps.storage.get(media.key, { signal });
  return body && (await measure(body, signal)).crc32 === media.checksums.crc32 ? media : undefined;
}

/** A thumbnail that cannot be had now is tried again later, and holds nothing up; being told to stop is another matter. */
const passOn =
  (deps: MirrorDeps, { asset, signal }: HeldAsset) =>
  async (error: unknown): Promise<undefined> => {
    if (signal.aborted) throw error;
    if (error instanceof RetryLater) await deps.pacer.met(asset.connectionId, error);
    return undefined;
  };
