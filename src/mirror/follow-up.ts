import { isDeepStrictEqual } from 'node:util';
import { longestWait } from '../errors.ts';
import { type HeldAsset, Interrupted } from '../queue/leases.ts';
import { type AssetDetail, mayHaveTranscript, storable, withoutLinks } from '../source/schemas.ts';
import { databaseTime, note } from '../store/assets/history.ts';
import type { SidecarStates } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { fenced } from './fenced-storage.ts';
import { keepGoing, type Outcome, settle } from './outcome.ts';
import { keptOf, recordOf, sidecarsOf, writeRecord } from './record.ts';
import { keepThumbnail, mirrorThumbnail } from './thumbnail.ts';
import { fetchTranscript, transcriptDeadline } from './transcript.ts';
import { versionOf } from './transfer.ts';

/** Where transcript and thumbnail stand when the media has just been stored. */
export function initialSidecars(deps: MirrorDeps, held: HeldAsset, detail: AssetDetail): SidecarStates {
  const deadline = deps.transcripts.mirror ? transcriptDeadline(deps, held, detail) : undefined;
  return {
    transcriptState: deadline ? 'pending' : 'none',
    transcriptKeys: null,
    transcriptDeadline: deadline ?? null,
    thumbnailState: deps.thumbnails.mirror && detail.thumbnailUrl ? 'pending' : 'none',
    thumbnail: held.asset.thumbnail,
    sidecarFiles: { ...held.asset.sidecarFiles },
  };
}

/** In how many ms there is something to come back for; null: nothing. `tries`: how often it was not there yet. */
export function nextFollowUp(
  deps: MirrorDeps,
  { lease }: HeldAsset,
  sidecars: SidecarStates,
  detail: AssetDetail,
  tries: number,
): number | null {
  const now = databaseTime(lease);
  const looks: number[] = [];
  if (sidecars.transcriptState === 'pending') {
    const { delay } = deps.transcripts;
    const first = Math.min(detail.uploadDate ?? now, now) + delay;
    const step = Math.min(Math.max(delay / 5, 1000), 60_000);
    const next =
      tries === 0 ? Math.max(first, now) : Math.max(first, now + Math.min(step * 1.5 ** (tries - 1), longestWait));
    looks.push(Math.min(next, sidecars.transcriptDeadline?.getTime() ?? next));
  }
  if (sidecars.thumbnailState === 'pending') looks.push(now + Math.min(2000 * 2 ** tries, 600_000));
  return looks.length ? Math.max(0, Math.min(...looks) - now) : null;
}

/** A thumbnail gets this many looks, within about two minutes; and as many again from each full run. */
const thumbnailTries = 6;

/**
 * Comes back for what was not there with the media: the transcript, the thumbnail, changed names and tags. The media is
 * never fetched again for these; the record is written anew.
 */
export async function followUp(all: MirrorDeps, held: HeldAsset): Promise<Outcome> {
  const deps = { ...all, storage: fenced(all.storage, held) };
  const { asset, lease, signal } = held;
  const assetId = asset.id;
  const { media } = asset;
  try {
    if (deps.breaker.open !== undefined) throw new Interrupted(deps.breaker.open);
    if (asset.state !== 'mirrored' || !media) return await startOver(deps, held);
    const detail = await deps.withToken(asset.connectionId, (token) =>
      deps.client.getAsset({ token, assetId, signal }),
    );
    note(lease, 'asked', { status: detail.status ?? null });
    if (detail.status === 'ready' && versionOf(detail) !== media.version) return await startOver(deps, held);

    const sidecars: SidecarStates = {
      transcriptState: asset.transcriptState,
      transcriptKeys: asset.transcriptKeys,
      transcriptDeadline: asset.transcriptDeadline,
      thumbnailState: asset.thumbnailState,
      thumbnail: asset.thumbnail,
      sidecarFiles: { ...asset.sidecarFiles },
    };
    const reasons: string[] = [];
    if (sidecars.transcriptState === 'pending' && !(deps.transcripts.mirror && mayHaveTranscript(detail))) {
      Object.assign(sidecars, { transcriptState: 'none', transcriptDeadline: null });
    }
    if (sidecars.transcriptState === 'pending') {
      sidecars.transcriptDeadline ??= transcriptDeadline(deps, held, detail) ?? new Date(databaseTime(lease));
      await fetchTranscript(deps, held, detail, sidecars, reasons);
      note(lease, 'transcript', { status: sidecars.transcriptState });
    }
    if (sidecars.thumbnailState === 'none' && deps.thumbnails.mirror && detail.thumbnailUrl) {
      sidecars.thumbnailState = 'pending';
    }
    if (sidecars.thumbnailState === 'pending') {
      const last = asset.attempts + 1 >= thumbnailTries;
      const thumbnail = await mirrorThumbnail(deps, {
        detail,
        connectionId: asset.connectionId,
        key: media.key,
        signal,
      }).catch(keepGoing(signal, reasons));
      if (thumbnail) keepThumbnail(sidecars, thumbnail);
      else if (last || !detail.thumbnailUrl) sidecars.thumbnailState = detail.thumbnailUrl ? 'gave_up' : 'none';
      note(lease, 'thumbnail', { status: sidecars.thumbnailState });
    }
    // What has no file yet may be of another version: the record goes on saying what its own bytes are of.
    const api = versionOf(detail) === media.version || !asset.detail ? withoutLinks(detail) : asset.detail;
    const changed =
      sidecars.transcriptState !== asset.transcriptState ||
      !isDeepStrictEqual(sidecars.thumbnail, asset.thumbnail) ||
      !isDeepStrictEqual(asset.detail, storable(api));
    let { recordKey } = asset;
    if (changed || !recordKey) {
      const record = recordOf(asset, media, api, sidecars, asset.mirroredAt ?? new Date(databaseTime(lease)));
      const stored = await writeRecord(deps.storage, record, signal);
      sidecars.sidecarFiles[stored.key] = keptOf(stored);
      recordKey = stored.key;
      note(lease, 'recorded');
    }
    const waitMs = nextFollowUp(deps, held, sidecars, detail, asset.attempts + 1);
    await deps.store.assets.mirrored(lease, {
      detail: storable(api),
      recordKey,
      ...sidecars,
      sidecarFiles: sidecarsOf(sidecars, recordKey),
      waitMs,
      attempts: waitMs === null ? 0 : asset.attempts + 1,
      reason: reasons.join('; ') || null,
    });
    deps.log.info(
      {
        connectionId: asset.connectionId,
        assetId,
        transcript: sidecars.transcriptState,
        thumbnail: sidecars.thumbnailState,
      },
      changed ? 'record completed' : 'nothing new yet',
    );
    return waitMs === null ? { outcome: 'complete' } : { outcome: 'later', retryInMs: Math.round(waitMs) };
  } catch (error) {
    return await settle(deps, held, error, async (reason) => {
      // The media is safe in any case: what cannot be completed is given up, and says why.
      await deps.store.assets.giveUpSidecars(lease, reason);
      return { outcome: 'gave up', reason };
    });
  }
}

/** The media itself is to be looked at again. */
async function startOver(deps: MirrorDeps, held: HeldAsset): Promise<Outcome> {
  await deps.store.assets.startOver(held.lease);
  return { outcome: 'the media is looked at again' };
}
