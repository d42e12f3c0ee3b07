import { Disconnected, longestWait, Rejected, RetryLater, reasonOf, StorageUnavailable, toReason } from '../errors.ts';
import type { AssetResult } from '../metrics/metrics.ts';
import { type HeldAsset, Interrupted } from '../queue/leases.ts';
import type { Reason } from '../reasons.ts';
import { passing } from '../source/http.ts';
import { TooSlow } from '../source/min-rate.ts';
import type { MirrorDeps } from './deps.ts';

/** How a job ended. The queue dashboard shows it. */
export interface Outcome {
  outcome: OutcomeCode;
  reason?: Reason;
  retryInMs?: number;
}

/** What the metrics count for each; undefined: nothing, for no transfer has ended. */
const results = {
  mirrored: 'mirrored',
  unavailable: 'unavailable',
  failed: 'failed',
  attempt_failed: 'retried',
  /** The library is still processing the video. */
  processing: 'waiting',
  /** The library asked to wait, or a follow-up check is still to come. */
  later: 'waiting',
  library_unavailable: 'waiting',
  bucket_unavailable: 'waiting',
  /** The bucket accepts other objects, but not this one. */
  object_refused: 'waiting',
  handed_back: 'handed_back',
  /** Another connection mirrors it. */
  handed_over: 'handed_back',
  skipped: undefined,
  nothing_to_do: undefined,
  /** Media and all sidecars are in the bucket. */
  complete: undefined,
  gave_up: undefined,
  /** The media is mirrored again. */
  started_over: undefined,
} as const satisfies Record<string, AssetResult | undefined>;
type OutcomeCode = keyof typeof results;

export const resultOf = ({ outcome }: Outcome): AssetResult | undefined => results[outcome];

/** A fault of the service or the network may pass; one of the file itself rarely does. */
const attemptsFor = (error: unknown) => (passing(error) ? 12 : 5);

/** `first` ms, twice that, four times … `last`, each with up to a quarter more. */
function backoff(times: number, first: number, last: number): number {
  return Math.min(first * 2 ** times, last) * (1 + Math.random() / 4);
}

/** After this many postponements, over hours, an operator should know of it. */
const mostWaits = 20;

/**
 * Classifies the error of a job (see errors.ts) and gives the asset back accordingly. `exhausted` ends an asset that has
 * used up its attempts, or that can never work.
 */
export async function settle(
  deps: Pick<MirrorDeps, 'store' | 'breaker' | 'outages' | 'limiter' | 'log' | 'timings'>,
  held: HeldAsset,
  error: unknown,
  exhausted: (reason: Reason) => Promise<Outcome>,
): Promise<Outcome> {
  const { log } = deps;
  const { asset, lease, signal } = held;
  const ids = { connectionId: asset.connectionId, assetId: asset.id };
  const again = async (
    outcome: OutcomeCode,
    waitMs: number,
    options: { spent?: boolean; putOff?: boolean; reason: Reason | null },
  ): Promise<Outcome> => {
    await deps.store.assets.again(lease, waitMs, options);
    const { reason } = options;
    return { outcome, retryInMs: Math.round(waitMs), ...(reason && { reason }) };
  };
  /** Waits longer each time. Spends no attempt. */
  const putOff = (outcome: OutcomeCode, reason: Reason, longest: number) =>
    again(outcome, backoff(asset.waits, 5000, longest), { putOff: true, reason });
  const fail = (reason: Reason) => {
    log.warn({ ...ids, attempts: asset.attempts + 1, reasonCode: reason.code, err: error }, 'asset failed');
    return exhausted(reason);
  };

  if (signal.aborted || error instanceof Interrupted || error instanceof Disconnected) {
    log.debug({ ...ids, reason: reasonOf(signal.reason ?? error) }, 'handed back');
    return again('handed_back', 0, { reason: null });
  }
  if (error instanceof RetryLater) {
    await deps.limiter.met(asset.connectionId, error);
    return again('later', error.waitMs, { reason: toReason(error) });
  }
  const text = reasonOf(error);
  if (error instanceof StorageUnavailable) {
    const refused: Reason = { code: 'object_refused', text };
    if (error.scope === 'object') return putOff('object_refused', refused, longestWait);
    await deps.breaker.check();
    if (deps.breaker.open !== undefined) {
      return again('bucket_unavailable', 5000 + Math.random() * 10_000, { reason: toReason(error) });
    }
    if (asset.waits >= mostWaits) return fail(refused);
    log.warn({ ...ids, reason: text }, 'object refused by bucket, will retry');
    return putOff('object_refused', refused, longestWait);
  }
  if (deps.outages.isGeneral(error, asset.id) && asset.waits < 10 * mostWaits) {
    return putOff('library_unavailable', { code: 'library_unavailable', error: text }, 300_000);
  }
  const reason = toReason(error);
  if (error instanceof Rejected || asset.attempts + 1 >= attemptsFor(error)) return fail(reason);
  // A slow file keeps a slot for a whole window, so it waits longer than that.
  const [first, last] = error instanceof TooSlow ? [2 * error.windowMs, 3_600_000] : [deps.timings.firstRetry, 120_000];
  const attempt = asset.attempts + 1;
  log.warn({ ...ids, attempt, reason: text, reasonCode: reason.code }, 'attempt failed, will retry');
  return again('attempt_failed', backoff(asset.attempts, first, last), { spent: true, reason });
}

/** Adds the error of a sidecar to `reasons`. @throws an error that concerns more than this sidecar */
export const keepGoing =
  (signal: AbortSignal, reasons: Reason[]) =>
  (error: unknown): undefined => {
    if (
      signal.aborted ||
      error instanceof RetryLater ||
      error instanceof StorageUnavailable ||
      error instanceof Disconnected
    ) {
      throw error;
    }
    reasons.push(toReason(error));
    return undefined;
  };
