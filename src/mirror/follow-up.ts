import { isDeepStrictEqual } from 'node:util';
import { Interrupted, longestWait } from '../floor/errors.ts';
import type { Reason } from '../floor/reason-codes.ts';
import { combineReasons } from '../floor/reasons.ts';
import { type LeasedAsset, requireLease } from '../queue/leases.ts';
import { type AssetDetail, mayHaveTranscript, storable, versionOf, withoutLinks } from '../source/schemas.ts';
import { isIntact } from '../storage/meter.ts';
import { databaseTime, note } from '../store/assets/history.ts';
import type { Asset, Media, SidecarStates } from '../store/database/schema.ts';
import { askLibrary, noteAnswer } from './ask-library.ts';
import type { MirrorDeps } from './deps.ts';
import { fenced } from './fenced-storage.ts';
import { isOriginalBack } from './open-source.ts';
import { sidecarFilesOf, writeRecord } from './record.ts';
import { collectReason, type Outcome, retryOrFail } from './retry-or-fail.ts';
import { mirrorThumbnail, setThumbnail } from './thumbnail.ts';
import { fetchTranscript, transcriptDeadline, transcriptFiles } from './transcript.ts';

/** The states of transcript and thumbnail when the media has just been stored. `isSame`: the same file was stored again, so its sidecars stay. */
export function initialSidecars(
  deps: MirrorDeps,
  leased: LeasedAsset,
  detail: AssetDetail,
  isSame: boolean,
): SidecarStates {
  const sidecars = sidecarsSoFar(leased.asset);
  if (!isSame || !sidecars.transcriptKeys) {
    const deadline = deps.transcripts.mirror ? transcriptDeadline(deps, leased, detail) : undefined;
    sidecars.transcriptState = deadline ? 'pending' : 'none';
    sidecars.transcriptKeys = null;
    sidecars.transcriptDeadline = deadline ?? null;
  }
  if (!isSame || !sidecars.thumbnail) {
    sidecars.thumbnailState = deps.thumbnails.mirror && detail.thumbnailUrl ? 'pending' : 'none';
    sidecars.thumbnail = null;
  }
  return sidecars;
}

/** The time in ms until the next follow-up check; null: none is due. `tries`: how many checks have found nothing. */
export function nextFollowUp(
  deps: MirrorDeps,
  { lease }: LeasedAsset,
  sidecars: SidecarStates,
  detail: AssetDetail,
  tries: number,
): number | null {
  const now = databaseTime(lease);
  const checks: number[] = [];
  if (sidecars.transcriptState === 'pending') {
    const { delay } = deps.transcripts;
    const first = Math.min(detail.uploadDate ?? now, now) + delay;
    const step = Math.min(Math.max(delay / 5, 1000), 60_000);
    const next =
      tries === 0 ? Math.max(first, now) : Math.max(first, now + Math.min(step * 1.5 ** (tries - 1), longestWait));
    checks.push(Math.min(next, sidecars.transcriptDeadline?.getTime() ?? next));
  }
  if (sidecars.thumbnailState === 'pending') checks.push(now + Math.min(2000 * 2 ** tries, 600_000));
  return checks.length ? Math.max(0, Math.min(...checks) - now) : null;
}

/** Follow-up checks for a thumbnail, within about two minutes. A full sync starts them again. */
const thumbnailTries = 6;

/**
 * Checks for a transcript or thumbnail that was not ready with the media, and for changed names and tags. The record is
 * rewritten. The media is not fetched again, unless it is a rendition whose original is back.
 */
export async function followUp(all: MirrorDeps, leased: LeasedAsset): Promise<Outcome> {
  const deps = { ...all, storage: fenced(all.storage, leased) };
  const { asset, lease } = leased;
  const { media } = asset;
  try {
    if (deps.breaker.openReason !== undefined) throw new Interrupted(deps.breaker.openReason);
    if (!media) return await startOver(deps, leased);
    const detail = await askLibrary(deps, leased);
    noteAnswer(leased, detail);
    const isReplaced = versionOf(detail) !== media.version;
    const sidecars = sidecarsSoFar(asset);
    // Sidecars first: a new file needs new ones, so an original whose transfer always fails could delay them for ever.
    const isDue = sidecars.transcriptState === 'pending' || sidecars.thumbnailState === 'pending';
    if (!isReplaced && !isDue && (await isOriginalBack(deps, leased, detail, media)))
      return await startOver(deps, leased);
    const reasons: Reason[] = [];
    if (isReplaced) {
      // The next sync decides whether the other file may replace the stored one.
      requireLease(await deps.store.assets.setAside(lease));
      note(lease, 'set_aside');
    } else {
      await completeTranscript(deps, leased, detail, sidecars, reasons);
      await completeThumbnail(deps, leased, detail, media.key, sidecars, reasons);
      await endRepairs(deps, leased, sidecars, reasons);
    }
    return await finish(deps, leased, { detail, media, sidecars, reasons, isReplaced });
  } catch (error) {
    const ended = await retryOrFail(deps, leased, error);
    return ended.outcome === 'failed' ? await giveUp(deps, leased, ended.reason, error) : ended;
  }
}

/** Ends the check. A transcript or thumbnail that is still missing is given up; the media is complete. */
async function giveUp({ store, log }: MirrorDeps, leased: LeasedAsset, reason: Reason, err: unknown): Promise<Outcome> {
  const { asset, lease } = leased;
  if (!(await store.assets.giveUpSidecars(lease, reason))) return { outcome: 'handed_back' };
  const fields = { connectionId: asset.connectionId, assetId: asset.id, reasonCode: reason.code, err };
  log.warn({ event: 'follow_up.failed', ...fields }, 'follow-up check failed');
  return { outcome: 'gave_up', reason };
}

const sidecarsSoFar = (asset: Asset): SidecarStates => ({
  transcriptState: asset.transcriptState,
  transcriptKeys: asset.transcriptKeys,
  transcriptDeadline: asset.transcriptDeadline,
  thumbnailState: asset.thumbnailState,
  thumbnail: asset.thumbnail,
  sidecarFiles: { ...asset.sidecarFiles },
});

async function completeTranscript(
  deps: MirrorDeps,
  leased: LeasedAsset,
  detail: AssetDetail,
  sidecars: SidecarStates,
  reasons: Reason[],
): Promise<void> {
  if (sidecars.transcriptState !== 'pending') return;
  if (!deps.transcripts.mirror || !mayHaveTranscript(detail)) {
    Object.assign(sidecars, { transcriptState: 'none', transcriptDeadline: null });
    return;
  }
  sidecars.transcriptDeadline ??= transcriptDeadline(deps, leased, detail) ?? new Date(databaseTime(leased.lease));
  await fetchTranscript(deps, leased, detail, sidecars, reasons);
  note(leased.lease, 'transcript', { status: sidecars.transcriptState });
}

async function completeThumbnail(
  deps: MirrorDeps,
  leased: LeasedAsset,
  detail: AssetDetail,
  mediaKey: string,
  sidecars: SidecarStates,
  reasons: Reason[],
): Promise<void> {
  if (sidecars.thumbnailState === 'none' && deps.thumbnails.mirror && detail.thumbnailUrl) {
    sidecars.thumbnailState = 'pending';
  }
  if (sidecars.thumbnailState !== 'pending') return;
  const thumbnail = await mirrorThumbnail(deps, leased, detail, mediaKey).catch(collectReason(leased.signal, reasons));
  if (thumbnail) setThumbnail(sidecars, thumbnail);
  else if (!detail.thumbnailUrl) sidecars.thumbnailState = 'none';
  else if (leased.asset.followUps + 1 >= thumbnailTries) sidecars.thumbnailState = 'gave_up';
  note(leased.lease, 'thumbnail', { status: sidecars.thumbnailState });
}

/**
 * Ends repairs of sidecars that the library no longer has. A damaged sidecar is removed from the records; otherwise
 * each verification would request its repair again. Its object stays in the bucket.
 */
async function endRepairs(
  deps: MirrorDeps,
  { asset, signal }: LeasedAsset,
  sidecars: SidecarStates,
  reasons: Reason[],
): Promise<void> {
  const isEnded = (before: string, now: string) => before === 'pending' && now !== 'pending' && now !== 'mirrored';
  const lost: string[] = [];
  const findLost = async (keys: string[]) => {
    for (const key of keys) {
      if (!(await isIntact(deps.storage, key, sidecars.sidecarFiles[key]?.crc32, { signal }))) lost.push(key);
    }
  };
  const { transcriptKeys, thumbnail } = sidecars;
  if (transcriptKeys && isEnded(asset.transcriptState, sidecars.transcriptState)) {
    await findLost(transcriptKeys);
    const intact = transcriptKeys.filter((key) => !lost.includes(key));
    const isWhole = intact.length === transcriptFiles;
    if (!isWhole && sidecars.transcriptState !== 'gave_up') reasons.push({ code: 'no_transcript' });
    sidecars.transcriptState = isWhole ? 'mirrored' : 'gave_up';
    sidecars.transcriptKeys = intact.length > 0 ? intact : null;
  }
  if (thumbnail && isEnded(asset.thumbnailState, sidecars.thumbnailState)) {
    await findLost([thumbnail.key]);
    if (lost.includes(thumbnail.key)) sidecars.thumbnail = null;
    else sidecars.thumbnailState = 'mirrored';
  }
  if (lost.length === 0) return;
  const fields = { connectionId: asset.connectionId, assetId: asset.id, lost };
  deps.log.warn({ event: 'sidecars.given_up', ...fields }, 'transcript or thumbnail given up');
}

/** Rewrites the record if anything has changed, and ends the lease. */
async function finish(
  deps: MirrorDeps,
  leased: LeasedAsset,
  found: { detail: AssetDetail; media: Media; sidecars: SidecarStates; reasons: Reason[]; isReplaced: boolean },
): Promise<Outcome> {
  const { asset, lease } = leased;
  const { detail, media, sidecars, reasons, isReplaced } = found;
  // The record keeps describing the version in the bucket.
  const api = isReplaced && asset.detail ? asset.detail : withoutLinks(detail);
  const isChanged =
    sidecars.transcriptState !== asset.transcriptState ||
    !isDeepStrictEqual(sidecars.thumbnail, asset.thumbnail) ||
    !isDeepStrictEqual(asset.detail, storable(api));
  const mirroredAt = asset.mirroredAt?.getTime() ?? databaseTime(lease);
  const written =
    isChanged || !asset.recordKey ? await writeRecord(deps, leased, { media, api, sidecars, mirroredAt }) : undefined;
  const recordKey = written ?? asset.recordKey!;
  const checks = asset.followUps + 1;
  const waitMs = isReplaced ? null : nextFollowUp(deps, leased, sidecars, detail, checks);
  requireLease(
    await deps.store.assets.mirrored(lease, {
      detail: storable(api),
      recordKey,
      ...sidecars,
      sidecarFiles: sidecarFilesOf(sidecars, recordKey),
      waitMs,
      followUps: waitMs === null ? 0 : checks,
      reason: combineReasons(reasons),
    }),
  );
  const { transcriptState: transcript, thumbnailState: thumbnail } = sidecars;
  const fields = { connectionId: asset.connectionId, assetId: asset.id, transcript, thumbnail };
  if (written) deps.log.info({ event: 'record.rewritten', ...fields }, 'record rewritten');
  else deps.log.info({ event: 'record.checked', ...fields }, 'record checked, nothing new');
  return waitMs === null ? { outcome: 'complete' } : { outcome: 'later', retryInMs: Math.round(waitMs) };
}

/** The media is missing, or can be replaced by the original: the asset is mirrored again. */
async function startOver(deps: MirrorDeps, leased: LeasedAsset): Promise<Outcome> {
  await deps.store.assets.startOver(leased.lease);
  return { outcome: 'started_over' };
}
