import { Disconnected, longestWait, Rejected, RetryLater, reasonOf, StorageUnavailable } from '../errors.ts';
import type { AssetResult } from '../metrics/metrics.ts';
import { type HeldAsset, Interrupted } from '../queue/leases.ts';
import { passing } from '../source/http.ts';
import { TooSlow } from '../source/min-rate.ts';
import type { MirrorDeps } from './deps.ts';

/** How a job ended. The queue dashboard shows it. */
export interface Outcome {
  outcome: OutcomeCode;
  reason?: string;
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
  exhausted: (reason: string) => Promise<Outcome>,
): Promise<Outcome> {
  const { store, log } = deps;
  const { asset, lease, signal } = held;
  const ids = { connectionId: asset.connectionId, assetId: asset.id };
  const wait = async (outcome: OutcomeCode, waitMs: number, reason: string | null = null): Promise<Outcome> => {
    await store.assets.again(lease, waitMs, { reason });
    return { outcome, retryInMs: Math.round(waitMs), ...(reason && { reason }) };
  };
  /** Waits longer each time. Spends no attempt. */
  const postpone = async (outcome: OutcomeCode, reason: string, longest: number): Promise<Outcome> => {
    const waitMs = backoff(asset.waits, 5000, longest);
    await store.assets.again(lease, waitMs, { putOff: true, reason });
    return { outcome, reason, retryInMs: Math.round(waitMs) };
  };

  if (signal.aborted || error instanceof Interrupted || error instanceof Disconnected) {
    log.debug({ ...ids, reason: reasonOf(signal.reason ?? error) }, 'handed back');
    return wait('handed_back', 0);
  }
  const reason = reasonOf(error);
  if (error instanceof RetryLater) {
    await deps.limiter.met(asset.connectionId, error);
    return wait('later', error.waitMs, reason);
  }
  if (error instanceof StorageUnavailable) {
    if (error.scope === 'object') return postpone('object_refused', reason, longestWait);
    await deps.breaker.check();
    if (deps.breaker.open !== undefined) return wait('bucket_unavailable', 5000 + Math.random() * 10_000, reason);
    if (asset.waits < mostWaits) {
      log.warn({ ...ids, reason }, 'object refused by bucket, will retry');
      return postpone('object_refused', reason, longestWait);
    }
  }
  if (deps.outages.isGeneral(error, asset.id) && asset.waits < 10 * mostWaits) {
    return postpone('library_unavailable', `${reason}; nor does anything else there`, 300_000);
  }
  if (error instanceof Rejected || error instanceof StorageUnavailable || asset.attempts + 1 >= attemptsFor(error)) {
    log.warn({ ...ids, attempts: asset.attempts + 1, err: error }, 'asset failed');
    return exhausted(reason);
  }
  // A slow file keeps a slot for a whole window, so it waits longer than that.
  const [first, last] = error instanceof TooSlow ? [2 * error.windowMs, 3_600_000] : [deps.timings.firstRetry, 120_000];
  const waitMs = backoff(asset.attempts, first, last);
  log.warn({ ...ids, attempt: asset.attempts + 1, reason }, 'attempt failed, will retry');
  await store.assets.again(lease, waitMs, { spent: true, reason });
  return { outcome: 'attempt_failed', reason, retryInMs: Math.round(waitMs) };
}

/** Adds the error of a sidecar to `reasons`. @throws an error that concerns more than this sidecar */
export const keepGoing =
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
