import { backoff } from '../floor/backoff.ts';
import {
  Disconnected,
  Interrupted,
  longestRepeatedWait,
  longestWait,
  Rejected,
  RetryLater,
  reasonOf,
  StorageUnavailable,
  toReason,
} from '../floor/errors.ts';
import { neverSent } from '../floor/network-problem.ts';
import type { Reason } from '../floor/reason-codes.ts';
import type { AssetResult } from '../metrics/metrics.ts';
import type { LeasedAsset } from '../queue/leases.ts';
import { isTemporary } from '../source/http.ts';
import { TooSlow } from '../source/min-rate.ts';
import type { Asset } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';

/** How a job ended. The queue dashboard shows it. */
export type Outcome =
  | { outcome: 'failed'; reason: Reason; retryInMs?: undefined }
  | { outcome: Exclude<OutcomeCode, 'failed'>; reason?: Reason; retryInMs?: number };

/** The result that the metrics count for each outcome; undefined: none, because no transfer has ended. */
const results = {
  mirrored: 'mirrored',
  unavailable: 'unavailable',
  failed: 'failed',
  attempt_failed: 'retried',
  /** The library is still processing the video. */
  processing: 'waiting',
  /** The library, the bucket or the tokens asked to wait, a download made progress before it failed, or a follow-up check is still to come. */
  later: 'waiting',
  library_unavailable: 'waiting',
  bucket_unavailable: 'waiting',
  /** The bucket accepts other objects, but not this one. */
  object_refused: 'waiting',
  handed_back: 'handed_back',
  /** Another connection mirrors the asset. */
  handed_over: 'handed_back',
  skipped: undefined,
  /** No check is due: each sidecar is stored, given up or not expected, or the library has another file. */
  complete: undefined,
  gave_up: undefined,
  /** The media is mirrored again. */
  started_over: undefined,
} as const satisfies Record<string, AssetResult | undefined>;
type OutcomeCode = keyof typeof results;

export const resultOf = ({ outcome }: Outcome): AssetResult | undefined => results[outcome];

/** An error of the library or the network may be temporary; one of the file itself rarely is. */
const attemptsFor = (error: unknown) => (isTemporary(error) ? 12 : 5);

/**
 * An object that the bucket refuses without a known cause fails after this number of waits, which take hours. If the bucket has no
 * space for it, the object waits without limit. In an outage of the library, an asset waits up to ten times as often; after that,
 * each failure counts as an attempt.
 */
const mostWaits = 20;

type RetryDeps = Pick<MirrorDeps, 'store' | 'breaker' | 'libraryBreaker' | 'outages' | 'limiter' | 'log' | 'timings'>;

/** The decision about an asset after an error. `spent`: the attempt counts; `waits`: how often in a row it is postponed. */
type Verdict =
  | { outcome: 'failed'; reason: Reason }
  | { outcome: Exclude<OutcomeCode, 'failed'>; waitMs: number; reason: Reason | null; spent?: true; waits?: number };

/**
 * Classifies the error of a job (see errors.ts). If the asset is tried again, the lease ends. If it has used up its attempts, or can
 * never work, the outcome is `failed`, and the caller ends the lease. If the lease was lost meanwhile, another worker decides.
 */
export async function retryOrFail(deps: RetryDeps, leased: LeasedAsset, error: unknown): Promise<Outcome> {
  const verdict = await classify(deps, leased, error);
  if (verdict.outcome === 'failed') return verdict;
  const { outcome, waitMs, ...options } = verdict;
  if (!(await deps.store.assets.retryLater(leased.lease, waitMs, options))) return { outcome: 'handed_back' };
  return { outcome, retryInMs: Math.round(waitMs), ...(options.reason && { reason: options.reason }) };
}

const idsOf = ({ connectionId, id }: LeasedAsset['asset']) => ({ connectionId, assetId: id });

async function classify(deps: RetryDeps, leased: LeasedAsset, error: unknown): Promise<Verdict> {
  const { asset, signal } = leased;
  const { log, breaker, libraryBreaker, outages, limiter, timings } = deps;
  // Without a wait, this process would take the same asset again and again.
  if (error instanceof Interrupted && breaker.openReason !== undefined && !signal.aborted)
    return bucketUnavailable(breaker.openReason);
  if (signal.aborted || error instanceof Interrupted || error instanceof Disconnected) {
    const reason = reasonOf(signal.reason ?? error);
    log.debug({ event: 'asset.handed_back', ...idsOf(asset), reason }, 'asset returned to the queue');
    return handedBack;
  }
  if (error instanceof StorageUnavailable) return judgeRefusal(deps, leased, error);
  if (error instanceof RetryLater) {
    if (error.reason.code === 'object_refused') return judgeRefusal(deps, leased, error);
    await limiter.adaptTo(asset.connectionId, error);
    return waitAsAsked(asset, error);
  }
  const text = reasonOf(error);
  if (neverSent(error) && libraryBreaker.openReason !== undefined) {
    return { outcome: 'library_unavailable', waitMs: soon(), reason: { code: 'library_unavailable', error: text } };
  }
  const outage: Reason = { code: 'library_unavailable', error: text };
  const waits = waitsSoFar(asset, outage);
  if (outages.recordFailure(error, asset.id) && waits < 10 * mostWaits) {
    const waitMs = backoff(waits, 5000, 300_000);
    return { outcome: 'library_unavailable', waitMs, reason: outage, waits: waits + 1 };
  }
  const reason = toReason(error);
  const attempt = asset.attempts + 1;
  if (error instanceof Rejected || attempt >= attemptsFor(error)) return { outcome: 'failed', reason };
  // A slow file keeps a slot for a whole window, so it waits longer than that.
  const [first, last] = error instanceof TooSlow ? [2 * error.windowMs, 3_600_000] : [timings.firstRetry, 120_000];
  const fields = { ...idsOf(asset), attempt, reason: text, reasonCode: reason.code };
  log.warn({ event: 'asset.retry_scheduled', ...fields }, 'attempt failed, will retry');
  return { outcome: 'attempt_failed', waitMs: backoff(asset.attempts, first, last), reason, spent: true };
}

/**
 * Each time in a row that the library asks for a wait, the asset waits twice as long. A link that always answers 429 delays its
 * whole connection each time it is requested, so it must be requested ever less often.
 */
function waitAsAsked(asset: Asset, error: RetryLater): Verdict {
  const { waitMs } = error;
  const reason = toReason(error);
  if (reason.code !== 'asked_to_wait') return { outcome: 'later', waitMs, reason };
  const waits = waitsSoFar(asset, reason);
  return { outcome: 'later', waitMs: Math.min(waitMs * 2 ** waits, longestRepeatedWait), reason, waits: waits + 1 };
}

/** How often in a row the asset has waited for this reason. Waits for another one do not count. */
const waitsSoFar = (asset: Asset, { code }: Reason) => (asset.reason?.code === code ? asset.waits : 0);

/** Milliseconds until this process or another one tries again. */
const soon = () => 5000 + Math.random() * 10_000;

const handedBack: Verdict = { outcome: 'handed_back', waitMs: 0, reason: null };

const bucketUnavailable = (error: string): Verdict => ({
  outcome: 'bucket_unavailable',
  waitMs: soon(),
  reason: { code: 'bucket_unavailable', error },
});

/** The bucket refused an object. A check of the bucket shows whether it refuses all objects or only this one. */
async function judgeRefusal(
  { breaker, log }: RetryDeps,
  { asset, signal }: LeasedAsset,
  error: StorageUnavailable | RetryLater,
): Promise<Verdict> {
  const text = reasonOf(error);
  const mayBeAll = error instanceof RetryLater || error.scope === 'all';
  if (mayBeAll) await breaker.check();
  // A process that stops does not wait for the check.
  if (signal.aborted) return handedBack;
  if (mayBeAll && breaker.openReason !== undefined) {
    return bucketUnavailable(text);
  }
  const reason: Reason = { code: 'object_refused', error: text };
  const waits = waitsSoFar(asset, reason);
  if (mayBeAll && waits >= mostWaits) return { outcome: 'failed', reason };
  log.warn({ event: 'object.refused', ...idsOf(asset), reason: text }, 'object refused by bucket, will retry');
  return { outcome: 'object_refused', waitMs: backoff(waits, 5000, longestWait), reason, waits: waits + 1 };
}

/** Adds the error of a sidecar to `reasons`. @throws an error that concerns more than this sidecar */
export const collectReason =
  (signal: AbortSignal, reasons: Reason[]) =>
  (error: unknown): undefined => {
    if (error instanceof RetryLater || stopsAsset(signal, error)) throw error;
    reasons.push(toReason(error));
    return undefined;
  };

/** Whether the work on an asset must stop, whatever has failed: also if it was only a sidecar. */
export const stopsAsset = (signal: AbortSignal, error: unknown): boolean =>
  signal.aborted ||
  error instanceof Interrupted ||
  error instanceof StorageUnavailable ||
  error instanceof Disconnected;
