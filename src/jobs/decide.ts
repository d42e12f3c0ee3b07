import { isDeepStrictEqual } from 'node:util';
import { mayHaveTranscript } from '../source/answers.ts';
import type { Decision, KnownAsset, ListedAsset } from '../store/listing.ts';
import { leftOutReason } from './selection.ts';

/** Begins the reason of an asset that breaks the API's schema where it is listed. */
const cannotBeRead = 'its listing cannot be read: ';

/**
 * What a listing makes of an asset. Pure. `full`: the run is a complete one, which also looks again at what failed, was
 * unavailable or was given up; `asked`: an operator named this asset; `leftOut`: the setting of the run's connection that
 * leaves it out.
 */
export function decide(
  before: KnownAsset | undefined,
  listed: ListedAsset,
  options: {
    full: boolean;
    asked?: boolean;
    transcripts?: boolean;
    thumbnails?: boolean;
    leftOut?: string | null;
    connectionId?: string;
  },
): Decision | undefined {
  const pending: Decision = { state: 'pending', reason: null, afresh: true, due: true };
  if (options.leftOut) {
    const decision = leaveOut(before, listed, options.leftOut, options.connectionId);
    if (decision !== 'as ever') return decision;
  }
  if (listed.problem !== undefined) {
    const reason = `${cannotBeRead}${listed.problem}`;
    if (!before) return { state: 'failed', reason, afresh: true, due: false };
    if (before.leftOut) return undefined;
    // What is known keeps its state: a listing that cannot be read says nothing about the file.
    return before.reason === reason ? undefined : { state: before.state, reason, afresh: false, due: false };
  }
  if (!before || options.asked || before.leftOut) return pending;

  const changed = !isDeepStrictEqual(before.listed, listed.listed);
  const replaced = before.size !== listed.size || before.uploadDate !== listed.uploadDate;
  switch (before.state) {
    case 'mirrored': {
      if (replaced) return pending;
      // What was given up is tried again when anything has changed, and by a full run.
      const again = changed || options.full;
      const transcript =
        options.transcripts !== false &&
        listed.listed.hasTranscript === true &&
        mayHaveTranscript(listed.listed) &&
        (before.transcriptState === 'none' || (before.transcriptState === 'gave_up' && again));
      const thumbnail =
        options.thumbnails !== false &&
        listed.listed.hasThumbnail === true &&
        before.thumbnailState === 'gave_up' &&
        again;
      const news = changed || transcript || thumbnail;
      const readable = before.reason?.startsWith(cannotBeRead);
      if (!news && !readable) return undefined;
      return {
        state: 'mirrored',
        reason: readable ? null : before.reason,
        afresh: false,
        due: news,
        ...(transcript && { transcriptState: 'pending' as const }),
        ...(thumbnail && { thumbnailState: 'pending' as const }),
      };
    }
    case 'unavailable':
    case 'failed':
      return changed || options.full ? pending : undefined;
    case 'gone':
      return before.media && before.mirroredAt && !replaced ? { ...pending, state: 'mirrored' } : pending;
    default:
      // On its way already; another file starts afresh. A new status, such as a video that became ready, is a reason to look now.
      if (!changed) return undefined;
      if (replaced) return pending;
      return {
        state: before.state,
        reason: before.reason,
        afresh: false,
        due: before.listed.status !== listed.listed.status,
      };
  }
}

/**
 * Of an asset that the run's connection leaves out. What another is in charge of is that one's to decide; what is in the
 * bucket stays as it is; what has been begun, and what is due, its worker decides.
 */
function leaveOut(
  before: KnownAsset | undefined,
  listed: ListedAsset,
  rule: string,
  connectionId: string | undefined,
): Decision | undefined | 'as ever' {
  const aside: Decision = { state: 'pending', reason: leftOutReason(rule), leftOut: rule, afresh: true, due: false };
  // What cannot be read may be anything: it is told for as long as it is listed, and not recorded.
  if (listed.problem !== undefined) return undefined;
  if (!before) return aside;
  if (before.connectionId !== connectionId) return undefined;
  if (before.leftOut) {
    return before.leftOut === rule && isDeepStrictEqual(before.listed, listed.listed) ? undefined : aside;
  }
  if (before.state === 'mirrored' || before.state === 'unavailable') return undefined;
  return before.media === null && (before.state === 'failed' || before.state === 'gone') ? aside : 'as ever';
}
