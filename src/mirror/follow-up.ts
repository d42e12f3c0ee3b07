import { isDeepStrictEqual } from 'node:util';
import { longestWait } from '../errors.ts';
import { type HeldAsset, Interrupted } from '../queue/leases.ts';
import { type AssetDetail, mayHaveTranscript, storable, withoutLinks } from '../source/schemas.ts';
import { databaseTime, note } from '../store/assets/history.ts';
import type { Artefacts } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { fenced } from './fenced-storage.ts';
import { keepGoing, type Outcome, settle } from './outcome.ts';
import { besideOf, keptOf, recordOf, writeRecord } from './record.ts';
import { keepThumbnail, mirrorThumbnail } from './thumbnail.ts';
import { lookForTranscript, transcriptDeadline } from './transcript.ts';
import { versionOf } from './transfer.ts';

/** Where transcript and thumbnail stand when the media has just been stored. */
export function artefactsAtFirst(deps: MirrorDeps, held: HeldAsset, detail: AssetDetail): Artefacts {
  const deadline = deps.transcripts.mirror ? transcriptDeadline(deps, held, detail) : undefined;
  return {
    transcriptState: deadline ? 'pending' : 'none',
    transcriptKeys: null,
    transcriptDeadline: deadline ?? null,
    thumbnailState: deps.thumbnails.mirror && detail.thumbnailUrl ? 'pending' : 'none',
    thumbnail: held.asset.thumbnail,
    beside: { ...held.asset.beside },
  };
}

/** In how many ms there is something to come back for; null: nothing. `tries`: how often it was not there yet. */
export function nextLook(
  deps: MirrorDeps,
  { turn }: HeldAsset,
  artefacts: Artefacts,
  detail: AssetDetail,
  tries: number,
): number | null {
  const now = databaseTime(turn);
  const looks: number[] = [];
  if (artefacts.transcriptState === 'pending') {
    const { delay } = deps.transcripts;
    const first = Math.min(detail.uploadDate ?? now, now) + delay;
    const step = Math.min(Math.max(delay / 5, 1000), 60_000);
    const next =
      tries === 0 ? Math.max(first, now) : Math.max(first, now + Math.min(step * 1.5 ** (tries - 1), longestWait));
    looks.push(Math.min(next, artefacts.transcriptDeadline?.getTime() ?? next));
  }
  if (artefacts.thumbnailState === 'pending') looks.push(now + Math.min(2000 * 2 ** tries, 600_000));
  return looks.length ? Math.max(0, Math.min(...looks) - now) : null;
}

/** A thumbnail gets this many looks, within about two minutes; and as many again from each full run. */
const thumbnailTries = 6;

/**
 * Comes back for what was not there with the media: the transcript, the thumbnail, changed names and tags. The media is
 * never fetched again for these; the record is written anew.
 */
export async function completeArtefacts(all: MirrorDeps, held: HeldAsset): Promise<Outcome> {
  const deps = { ...all, storage: fenced(all.storage, held) };
  const { asset, turn, signal } = held;
  const assetId = asset.id;
  const { media } = asset;
  try {
    if (deps.gate.closed !== undefined) throw new Interrupted(deps.gate.closed);
    if (asset.state !== 'mirrored' || !media) return await startOver(deps, held);
    const detail = await deps.withToken(asset.connectionId, (token) =>
      deps.client.getAsset({ token, assetId, signal }),
    );
    note(turn, 'asked', { status: detail.status ?? null });
    if (detail.status === 'ready' && versionOf(detail) !== media.version) return await startOver(deps, held);

    const artefacts: Artefacts = {
      transcriptState: asset.transcriptState,
      transcriptKeys: asset.transcriptKeys,
      transcriptDeadline: asset.transcriptDeadline,
      thumbnailState: asset.thumbnailState,
      thumbnail: asset.thumbnail,
      beside: { ...asset.beside },
    };
    const reasons: string[] = [];
    if (artefacts.transcriptState === 'pending' && !(deps.transcripts.mirror && mayHaveTranscript(detail))) {
      Object.assign(artefacts, { transcriptState: 'none', transcriptDeadline: null });
    }
    if (artefacts.transcriptState === 'pending') {
      artefacts.transcriptDeadline ??= transcriptDeadline(deps, held, detail) ?? new Date(databaseTime(turn));
      await lookForTranscript(deps, held, detail, artefacts, reasons);
      note(turn, 'transcript', { status: artefacts.transcriptState });
    }
    if (artefacts.thumbnailState === 'none' && deps.thumbnails.mirror && detail.thumbnailUrl) {
      artefacts.thumbnailState = 'pending';
    }
    if (artefacts.thumbnailState === 'pending') {
      const last = asset.attempts + 1 >= thumbnailTries;
      const thumbnail = await mirrorThumbnail(deps, {
        detail,
        connectionId: asset.connectionId,
        key: media.key,
        signal,
      }).catch(keepGoing(signal, reasons));
      if (thumbnail) keepThumbnail(artefacts, thumbnail);
      else if (last || !detail.thumbnailUrl) artefacts.thumbnailState = detail.thumbnailUrl ? 'gave_up' : 'none';
      note(turn, 'thumbnail', { status: artefacts.thumbnailState });
    }
    // What has no file yet may be of another version: the record goes on saying what its own bytes are of.
    const api = versionOf(detail) === media.version || !asset.detail ? withoutLinks(detail) : asset.detail;
    const changed =
      artefacts.transcriptState !== asset.transcriptState ||
      !isDeepStrictEqual(artefacts.thumbnail, asset.thumbnail) ||
      !isDeepStrictEqual(asset.detail, storable(api));
    let { recordKey } = asset;
    if (changed || !recordKey) {
      const record = recordOf(asset, media, api, artefacts, asset.mirroredAt ?? new Date(databaseTime(turn)));
      const stored = await writeRecord(deps.storage, record, signal);
      artefacts.beside[stored.key] = keptOf(stored);
      recordKey = stored.key;
      note(turn, 'recorded');
    }
    const waitMs = nextLook(deps, held, artefacts, detail, asset.attempts + 1);
    await deps.store.assets.mirrored(turn, {
      detail: storable(api),
      recordKey,
      ...artefacts,
      beside: besideOf(artefacts, recordKey),
      waitMs,
      attempts: waitMs === null ? 0 : asset.attempts + 1,
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
    return waitMs === null ? { outcome: 'complete' } : { outcome: 'later', retryInMs: Math.round(waitMs) };
  } catch (error) {
    return await settle(deps, held, error, async (reason) => {
      // The media is safe in any case: what cannot be completed is given up, and says why.
      await deps.store.assets.giveUpArtefacts(turn, reason);
      return { outcome: 'gave up', reason };
    });
  }
}

/** The media itself is to be looked at again. */
async function startOver(deps: MirrorDeps, held: HeldAsset): Promise<Outcome> {
  await deps.store.assets.startOver(held.turn);
  return { outcome: 'the media is looked at again' };
}
