import type { Reason } from '../floor/reason-codes.ts';
import type { LeasedAsset } from '../queue/leases.ts';
import { type AssetDetail, mayHaveTranscript } from '../source/schemas.ts';
import { sidecarKeys } from '../storage/keys.ts';
import { databaseTime } from '../store/assets/history.ts';
import type { SidecarStates } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { storedSidecarOf } from './record.ts';
import { collectReason } from './retry-or-fail.ts';

/**
 * The deadline of a transcript; undefined: none is expected. Transcripts exist for video and audio only, some minutes
 * after the upload (spec, section 4.8). The time runs from now if one is announced, otherwise from the upload.
 */
export function transcriptDeadline(deps: MirrorDeps, { lease }: LeasedAsset, detail: AssetDetail): Date | undefined {
  if (!mayHaveTranscript(detail)) return undefined;
  const { giveUp } = deps.transcripts;
  const now = databaseTime(lease);
  if (detail.hasTranscript) return new Date(now + giveUp);
  const uploaded = Math.min(detail.uploadDate ?? 0, now);
  return uploaded + giveUp > now ? new Date(uploaded + giveUp) : undefined;
}

/** The number of files of a whole transcript. */
export const transcriptFiles = 3;

/** Requests the transcript once. Stores it in the bucket and in `sidecars`. */
export async function fetchTranscript(
  deps: MirrorDeps,
  leased: LeasedAsset,
  detail: AssetDetail,
  sidecars: SidecarStates,
  reasons: Reason[],
): Promise<void> {
  const { asset, lease, signal } = leased;
  const late = () => databaseTime(lease) >= (sidecars.transcriptDeadline?.getTime() ?? 0);
  if (!detail.hasTranscript) {
    if (late()) Object.assign(sidecars, { transcriptState: 'none', transcriptDeadline: null });
    return;
  }
  const transcript = await deps
    .withToken(asset.connectionId, (token) => deps.client.getTranscript({ token, assetId: asset.id, signal }))
    .catch(collectReason(signal, reasons));
  if (transcript?.kind === 'no speech') {
    Object.assign(sidecars, { transcriptState: 'no_speech', transcriptDeadline: null });
  } else if (transcript?.kind === 'transcript') {
    const { key } = asset.media!;
    const parts = [
      [sidecarKeys.captions(key), transcript.vtt, 'text/vtt; charset=utf-8'],
      [sidecarKeys.text(key), transcript.text, 'text/plain; charset=utf-8'],
      [sidecarKeys.transcript(key), transcript.json, 'application/json'],
    ] as const;
    for (const [key, content, contentType] of parts) {
      sidecars.sidecarFiles[key] = storedSidecarOf(await deps.storage.put(key, content, { contentType, signal }));
    }
    Object.assign(sidecars, {
      transcriptState: 'mirrored',
      transcriptKeys: parts.map(([key]) => key),
      transcriptDeadline: null,
    });
  } else if (late()) {
    Object.assign(sidecars, { transcriptState: 'gave_up', transcriptDeadline: null });
    reasons.push({ code: 'no_transcript' });
  }
}
