import { isDeepStrictEqual } from 'node:util';
import type { Reason, SkippedByFilter } from '../floor/reason-codes.ts';
import { mayHaveTranscript, versionOf } from '../source/schemas.ts';
import type { ListedAsset } from '../store/database/schema.ts';
import type { Decision, KnownAsset } from '../store/syncs/write-assets.ts';

interface DecideOptions {
  full: boolean;
  requested?: boolean;
  transcripts: boolean;
  thumbnails: boolean;
  skipReason?: SkippedByFilter | null;
  connectionId?: string;
}

/**
 * Decides what to do with a listed asset. Pure. `full`: a full sync, which also retries failed and unavailable assets, and
 * transcripts and thumbnails that were given up; `requested`: an operator named this asset; `skipReason`: why a filter of the
 * connection skips it. An asset that moved to another company is written even if nothing else has changed. A file that would
 * replace a stored one is set aside: judge-replaced.ts decides about it at the end of the listing.
 */
export function decide(
  before: KnownAsset | undefined,
  listed: ListedAsset,
  options: DecideOptions,
): Decision | undefined {
  const decision = judge(before, listed, options);
  if (decision || !before?.stranded) return decision;
  return keepState(before);
}

/** The asset starts over. */
const pending: Decision = { state: 'pending', reason: null, reset: true, due: true };

function judge(before: KnownAsset | undefined, listed: ListedAsset, options: DecideOptions): Decision | undefined {
  if (options.skipReason) {
    const decision = skip(before, listed, options.skipReason, options.connectionId);
    if (decision !== 'ignore filter') return decision;
  }
  if (listed.problem !== undefined) return judgeUnreadable(before, listed.problem);
  if (!before || options.requested || before.skipped) return pending;

  const changed = !isDeepStrictEqual(before.listed, listed.listed);
  const isOther = before.size !== listed.size || before.uploadDate !== listed.uploadDate;
  const isCopied = hasCopy(before);
  const replaced = isOther && !(isCopied && isStored(before, listed));
  if (replaced && isCopied) {
    return isDeepStrictEqual(before.replacement?.listed, listed.listed) ? undefined : setAside(before);
  }
  switch (before.state) {
    case 'mirrored':
      // A replaced file has no copy here: there is nothing to protect.
      return replaced ? pending : judgeMirrored(before, listed, { ...options, changed });
    case 'unavailable':
    case 'failed':
      return changed || options.full || before.replacement ? pending : undefined;
    case 'gone':
      return isCopied ? { ...pending, state: 'mirrored' } : pending;
    default:
      // Pending or in transfer: a replaced file starts over.
      if (!changed) return undefined;
      return replaced ? pending : keepState(before, { due: hasNewStatus(before, listed) });
  }
}

/** An entry of the listing that cannot be read says nothing about the stored file. What was set aside is deleted. */
function judgeUnreadable(before: KnownAsset | undefined, problem: Reason): Decision | undefined {
  if (!before) return { state: 'failed', reason: problem, reset: true, due: false };
  if (before.skipped) return undefined;
  // It is in the library again, so its file must not be removed. It is due, because a request for it alone may be readable.
  if (before.state === 'gone') return { ...pending, state: hasCopy(before) ? 'mirrored' : 'pending', reason: problem };
  return isDeepStrictEqual(before.reason, problem) ? undefined : keepState(before, { reason: problem });
}

/** Its file is the same. Its record, transcript or thumbnail may have to be written. */
function judgeMirrored(
  before: KnownAsset,
  { listed }: ListedAsset,
  { changed, full, transcripts, thumbnails }: DecideOptions & { changed: boolean },
): Decision | undefined {
  // A transcript or thumbnail that was given up is tried again if anything has changed, and by a full sync.
  const mayRetry = changed || full;
  const transcript =
    transcripts &&
    listed.hasTranscript === true &&
    mayHaveTranscript(listed) &&
    (before.transcriptState === 'none' || (before.transcriptState === 'gave_up' && mayRetry));
  const thumbnail = thumbnails && listed.hasThumbnail === true && before.thumbnailState === 'gave_up' && mayRetry;
  const isReadableAgain = before.reason?.code === 'unreadable_listing' || before.reason?.code === 'not_recorded';
  // The last follow-up check has failed: the record may have an old name.
  const hasFailed = before.reason !== null && !isReadableAgain;
  // The original of a rendition may be back.
  const isRendition = before.media?.variant === 'mp4';
  const isDue = changed || transcript || thumbnail || (full && (hasFailed || isRendition));
  if (!isDue && !isReadableAgain && !before.replacement) return undefined;
  return {
    // If a follow-up check found the replacement, it planned no next check. This decision deletes the replacement, so one is due.
    ...keepState(before, { due: isDue || Boolean(before.replacement), ...(isReadableAgain && { reason: null }) }),
    ...(transcript && { transcriptState: 'pending' as const }),
    ...(thumbnail && { thumbnailState: 'pending' as const }),
  };
}

/** The asset continues where it is. */
const keepState = (
  { state, reason }: KnownAsset,
  change: Partial<Pick<Decision, 'due' | 'reason' | 'keepsFields'>> = {},
): Decision => ({ state, reason, reset: false, due: false, ...change });

/** A new status, such as that of a video that became ready, is handled at once. */
const hasNewStatus = (before: KnownAsset, { listed }: ListedAsset) => before.listed.status !== listed.status;

/** Whether the bucket has a complete copy that another file would replace. While a worker replaces or repairs the file, it has none. */
function hasCopy({ state, media, mirroredAt }: KnownAsset): boolean {
  const isMoving = state === 'pending' || state === 'processing' || state === 'transferring';
  return Boolean(!isMoving && media?.version && mirroredAt);
}

/** The bucket has the listed version. The earlier listing may have had no size, because the library was still processing the file. */
const isStored = ({ media }: KnownAsset, listed: ListedAsset) => media?.version === versionOf(listed);

/** The stored file stays. An asset that was gone is in the library again. */
function setAside({ state, reason }: KnownAsset): Decision {
  const isBack = state === 'gone';
  return {
    state: isBack ? 'mirrored' : state,
    reason: isBack ? null : reason,
    reset: isBack,
    due: false,
    setAside: true,
  };
}

/**
 * Decides about an asset that the connection's filter skips. Assets of another connection stay as they are, and so do
 * mirrored and unavailable ones. 'ignore filter': decide as if the connection had no filter. If nothing is stored yet, its worker applies
 * the filter; a stored file is kept complete.
 */
function skip(
  before: KnownAsset | undefined,
  listed: ListedAsset,
  reason: SkippedByFilter,
  connectionId: string | undefined,
): Decision | undefined | 'ignore filter' {
  const skipping: Decision = { state: 'pending', reason, reset: true, due: false };
  const mayBeRemoved = before?.media && before.state === 'gone' && before.connectionId === connectionId;
  // An unreadable asset that is skipped is neither recorded nor reported, unless its file would be removed.
  if (listed.problem !== undefined) return mayBeRemoved ? 'ignore filter' : undefined;
  if (!before) return skipping;
  if (before.connectionId !== connectionId) return undefined;
  if (before.skipped) {
    const isSame = isDeepStrictEqual(before.reason, reason);
    return isSame && isDeepStrictEqual(before.listed, listed.listed) ? undefined : skipping;
  }
  // Written only so that what was set aside is deleted: the filter skips it.
  if (before.replacement) return keepState(before, { keepsFields: true });
  if (before.state === 'mirrored' || before.state === 'unavailable') return undefined;
  return before.media === null && (before.state === 'failed' || before.state === 'gone') ? skipping : 'ignore filter';
}
