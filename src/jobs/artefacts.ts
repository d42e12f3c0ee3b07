import { isDeepStrictEqual } from 'node:util';
import mime from 'mime';
import { Disconnected, RetryLater, reasonOf, StorageUnavailable } from '../errors.ts';
import { type AssetDetail, storable, withoutLinks } from '../source/answers.ts';
import { beside } from '../storage/keys.ts';
import type { Asset, ThumbnailState, TranscriptState } from '../store/schema.ts';
import type { MirrorDeps } from './mirror-asset.ts';
import { type Outcome, settle } from './outcome.ts';
import { recordOf, writeRecord } from './record.ts';
import { versionOf } from './transfer.ts';
import { type HeldAsset, Interrupted } from './turns.ts';

/** What lies beside the media: transcript and thumbnail, each with where it stands. */
export interface Artefacts {
  transcriptState: TranscriptState;
  transcriptKeys: string[] | null;
  transcriptDeadline: Date | null;
  thumbnailState: ThumbnailState;
  thumbnail: { key: string; bytes: number } | null;
}

/** Thumbnails are small pictures; more than this is something else. */
const largestThumbnail = 32 * 2 ** 20;

/** Where transcript and thumbnail stand when the media has just been stored. */
export function artefactsAtFirst(deps: MirrorDeps, asset: Asset, detail: AssetDetail): Artefacts {
  const deadline = deps.transcripts.mirror ? transcriptDeadline(deps, detail) : undefined;
  return {
    transcriptState: deadline ? 'pending' : 'none',
    transcriptKeys: null,
    transcriptDeadline: deadline ?? null,
    thumbnailState: deps.thumbnails.mirror && detail.thumbnailUrl ? 'pending' : 'none',
    thumbnail: asset.thumbnail,
  };
}

/**
 * Until when a transcript may still come; undefined: none will. They exist for video and audio only, some minutes after
 * the upload (spec, section 4.8): one that is announced gets its time from now, one that is not has it from the upload.
 */
function transcriptDeadline(deps: MirrorDeps, detail: AssetDetail): Date | undefined {
  const timed =
    /^(video|audio)\//i.test(detail.mimeType ?? '') || detail.assetType === 'videos' || detail.assetType === 'audio';
  if (!timed) return undefined;
  const { giveUp } = deps.transcripts;
  if (detail.hasTranscript) return new Date(Date.now() + giveUp);
  const uploaded = Math.min(detail.uploadDate ?? 0, Date.now());
  return uploaded + giveUp > Date.now() ? new Date(uploaded + giveUp) : undefined;
}

/** When there is something to come back for; null: nothing. `tries`: how often it was not there yet. */
export function nextLook(deps: MirrorDeps, artefacts: Artefacts, detail: AssetDetail, tries: number): Date | null {
  const now = Date.now();
  const looks: number[] = [];
  if (artefacts.transcriptState === 'pending') {
    const { delay } = deps.transcripts;
    const first = Math.min(detail.uploadDate ?? now, now) + delay;
    const step = Math.min(Math.max(delay / 5, 1000), 60_000);
    const next =
      tries === 0 ? Math.max(first, now) : Math.max(first, now + Math.min(step * 1.5 ** (tries - 1), 3_600_000));
    looks.push(Math.min(next, artefacts.transcriptDeadline?.getTime() ?? next));
  }
  if (artefacts.thumbnailState === 'pending') looks.push(now + Math.min(2000 * 2 ** tries, 600_000));
  return looks.length ? new Date(Math.min(...looks)) : null;
}

/** A thumbnail gets this many looks. */
const thumbnailTries = 6;

/**
 * Comes back for what was not there with the media: the transcript, the thumbnail, changed names and tags. The media is
 * never fetched again for these; the record is written anew.
 */
export async function completeArtefacts(deps: MirrorDeps, assetId: string): Promise<Outcome> {
  const held = await deps.turns.take(assetId);
  if (!held) return { outcome: 'nothing to do' };
  const { asset, turn, signal } = held;
  const { media } = asset;
  try {
    if (deps.gate.closed !== undefined) throw new Interrupted(deps.gate.closed);
    if (asset.state !== 'mirrored' || !media) return await startOver(deps, held);
    const detail = await deps.withToken(asset.connectionId, (token) =>
      deps.client.getAsset({ token, assetId, signal }),
    );
    if (detail.status === 'ready' && versionOf(detail) !== media.version) return await startOver(deps, held);

    const artefacts: Artefacts = {
      transcriptState: asset.transcriptState,
      transcriptKeys: asset.transcriptKeys,
      transcriptDeadline: asset.transcriptDeadline,
      thumbnailState: asset.thumbnailState,
      thumbnail: asset.thumbnail,
    };
    const reasons: string[] = [];
    if (artefacts.transcriptState === 'pending' && deps.transcripts.mirror) {
      artefacts.transcriptDeadline ??= transcriptDeadline(deps, detail) ?? new Date();
      await lookForTranscript(deps, held, detail, artefacts, reasons);
    }
    if (artefacts.thumbnailState === 'pending') {
      const last = asset.attempts + 1 >= thumbnailTries;
      const thumbnail = await mirrorThumbnail(deps, detail, media.key, signal).catch(keepGoing(signal, reasons));
      if (thumbnail) Object.assign(artefacts, { thumbnail, thumbnailState: 'mirrored' });
      else if (last || !detail.thumbnailUrl) artefacts.thumbnailState = detail.thumbnailUrl ? 'gave_up' : 'none';
    }
    const api = withoutLinks(detail);
    const changed =
      artefacts.transcriptState !== asset.transcriptState ||
      artefacts.thumbnailState !== asset.thumbnailState ||
      !isDeepStrictEqual(asset.detail, storable(api));
    const recordKey =
      changed || !asset.recordKey
        ? await writeRecord(
            deps.storage,
            recordOf(asset, media, api, artefacts, asset.mirroredAt ?? new Date()),
            signal,
          )
        : asset.recordKey;
    const nextAt = nextLook(deps, artefacts, detail, asset.attempts + 1);
    await deps.store.assets.mirrored(turn, {
      size: asset.size,
      uploadDate: asset.uploadDate,
      detail: storable(api),
      recordKey,
      ...artefacts,
      nextAt,
      attempts: nextAt ? asset.attempts + 1 : 0,
      reason: reasons.join('; ') || null,
    });
    deps.log.info(
      {
        connectionId: asset.connectionId,
        assetId,
        transcript: artefacts.transcriptState,
        thumbnail: artefacts.thumbnailState,
      },
      changed ? 'record completed' : 'nothing new yet',
    );
    return { outcome: nextAt ? 'later' : 'complete', ...(nextAt && { at: nextAt }) };
  } catch (error) {
    return await settle(deps, held, error, async (reason) => {
      // The media is safe in any case: what cannot be completed is given up, and says why.
      await deps.store.assets.giveUpArtefacts(turn, reason);
      return { outcome: 'gave up', reason };
    });
  } finally {
    held.end();
  }
}

/** The media itself is to be looked at again. */
async function startOver(deps: MirrorDeps, held: HeldAsset): Promise<Outcome> {
  await deps.store.assets.startOver(held.turn);
  return { outcome: 'the media is looked at again' };
}

/** One look for the transcript; what it finds goes into the bucket and into `artefacts`. */
async function lookForTranscript(
  deps: MirrorDeps,
  held: HeldAsset,
  detail: AssetDetail,
  artefacts: Artefacts,
  reasons: string[],
): Promise<void> {
  const { asset, signal } = held;
  const late = () => Date.now() >= (artefacts.transcriptDeadline?.getTime() ?? 0);
  if (!detail.hasTranscript) {
    if (late()) Object.assign(artefacts, { transcriptState: 'none', transcriptDeadline: null });
    return;
  }
  const transcript = await deps
    .withToken(asset.connectionId, (token) => deps.client.getTranscript({ token, assetId: asset.id, signal }))
    .catch(keepGoing(signal, reasons));
  if (transcript?.kind === 'no speech') {
    Object.assign(artefacts, { transcriptState: 'no_speech', transcriptDeadline: null });
  } else if (transcript?.kind === 'transcript') {
    const { key } = asset.media!;
    const parts = [
      [beside.captions(key), transcript.vtt, 'text/vtt; charset=utf-8'],
      [beside.text(key), transcript.text, 'text/plain; charset=utf-8'],
      [beside.transcript(key), transcript.json, 'application/json'],
    ] as const;
    for (const [place, content, contentType] of parts) await deps.storage.put(place, content, { contentType, signal });
    Object.assign(artefacts, {
      transcriptState: 'mirrored',
      transcriptKeys: parts.map(([place]) => place),
      transcriptDeadline: null,
    });
  } else if (late()) {
    Object.assign(artefacts, { transcriptState: 'gave_up', transcriptDeadline: null });
    reasons.push('no transcript came until the deadline');
  }
}

/** Fetches the thumbnail. Undefined: the asset has none. */
export async function mirrorThumbnail(
  deps: MirrorDeps,
  detail: AssetDetail,
  key: string,
  signal: AbortSignal,
): Promise<{ key: string; bytes: number } | undefined> {
  if (!detail.thumbnailUrl) return undefined;
  const link = { url: detail.thumbnailUrl, renew: async () => detail.thumbnailUrl! };
  const download = await deps.downloader.open(link, signal);
  try {
    const type = download.contentType?.split(';')[0]?.trim().toLowerCase() ?? '';
    if (type !== '' && !type.startsWith('image/') && type !== 'application/octet-stream') {
      throw new Error(`the thumbnail is ${type}, not a picture`);
    }
    if ((download.bytes ?? 0) > largestThumbnail) throw new Error(`the thumbnail has ${download.bytes} bytes`);
    const extension = mime.getExtension(type) ?? 'jpg';
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of download.body) {
      size += chunk.length;
      if (size > largestThumbnail) throw new Error('the thumbnail goes on and on');
      chunks.push(chunk);
    }
    const place = beside.thumbnail(key, extension === 'jpeg' ? 'jpg' : extension === 'bin' ? 'jpg' : extension);
    const stored = await deps.storage.put(place, Buffer.concat(chunks), { contentType: type || 'image/jpeg', signal });
    return { key: place, bytes: stored.bytes };
  } finally {
    download.body.on('error', () => {}).destroy();
  }
}

/** Notes what went wrong and goes on; what is not about this one thing is passed on. */
const keepGoing =
  (signal: AbortSignal, reasons: string[]) =>
  (error: unknown): undefined => {
    if (
      signal.aborted ||
      error instanceof RetryLater ||
      error instanceof StorageUnavailable ||
      error instanceof Disconnected
    ) {
      throw error;
    }
    reasons.push(reasonOf(error));
    return undefined;
  };
