import { Disconnected, longestWait, Rejected, RetryLater, reasonOf, StorageUnavailable } from '../errors.ts';
import type { Log } from '../log.ts';
import type { AssetResult } from '../metrics/metrics.ts';
import type { Limiter } from '../pacing/adaptive-concurrency.ts';
import type { CircuitBreaker } from '../pacing/circuit-breaker.ts';
import type { OutageDetector } from '../pacing/outage.ts';
import { type HeldAsset, Interrupted } from '../queue/leases.ts';
import { passing } from '../source/http.ts';
import { TooSlow } from '../source/min-rate.ts';
import type { Store } from '../store/store.ts';

/** What a job says of itself in the queue dashboard. */
export interface Outcome {
  outcome: OutcomeName;
  reason?: string;
  retryInMs?: number;
}

/** What is counted of each; undefined: no worker's lease of the media has ended. */
const results = {
  mirrored: 'mirrored',
  unavailable: 'unavailable',
  failed: 'failed',
  'attempt failed': 'retried',
  processing: 'waiting',
  later: 'waiting',
  'the bucket has no place for it': 'waiting',
  'the bucket takes nothing': 'waiting',
  'the bucket does not take it': 'waiting',
  'the service does not answer': 'waiting',
  'handed back': 'handed_back',
  'handed over': 'handed_back',
  skipped: undefined,
  'nothing to do': undefined,
  complete: undefined,
  'gave up': undefined,
  'the media is looked at again': undefined,
} as const satisfies Record<string, AssetResult | undefined>;
export type OutcomeName = keyof typeof results;

export const resultOf = ({ outcome }: Outcome): AssetResult | undefined => results[outcome];

/** A fault of the service or the network may pass; one of the file itself rarely does. */
const attemptsFor = (error: unknown) => (passing(error) ? 12 : 5);

/** `first` ms, twice that, four times … `last`, each with up to a quarter more. */
function backoff(times: number, first: number, last: number): number {
  return Math.min(first * 2 ** times, last) * (1 + Math.random() / 4);
}

/** What is put off this often, over hours, is worth a person's look. */
const mostWaits = 20;

/**
 * Sorts an error of a job by what it is (see errors.ts), and gives the asset back accordingly. `exhausted` decides what
 * becomes of an asset that has used up its attempts, or that can never work.
 */
export async function settle(
  deps: { store: Store; breaker: CircuitBreaker; outages: OutageDetector; limiter: Limiter; log: Log },
  held: HeldAsset,
  error: unknown,
  exhausted: (reason: string) => Promise<Outcome>,
): Promise<Outcome> {
  const { store, log } = deps;
  const { asset, lease, signal } = held;
  const ids = { connectionId: asset.connectionId, assetId: asset.id };
  const wait = async (outcome: OutcomeName, waitMs: number, reason: string | null = null): Promise<Outcome> => {
    await store.assets.again(lease, waitMs, { reason });
    return { outcome, retryInMs: Math.round(waitMs), ...(reason && { reason }) };
  };
  /** Longer each time, with its reason, and no attempt spent. */
  const putOff = async (outcome: OutcomeName, reason: string, first: number, last: number): Promise<Outcome> => {
    const waitMs = backoff(asset.waits, first, last);
    await store.assets.again(lease, waitMs, { putOff: true, reason });
    return { outcome, reason, retryInMs: Math.round(waitMs) };
  };

  if (signal.aborted || error instanceof Interrupted || error instanceof Disconnected) {
    log.debug({ ...ids, reason: reasonOf(signal.reason ?? error) }, 'handed back');
    return wait('handed back', 0);
  }
  const reason = reasonOf(error);
  if (error instanceof RetryLater) {
    await deps.limiter.met(asset.connectionId, error);
    return wait('later', error.waitMs, reason);
  }
  if (error instanceof StorageUnavailable) {
    if (error.scope === 'object') return putOff('the bucket has no place for it', reason, 5000, longestWait);
    await deps.breaker.check();
    if (deps.breaker.open !== undefined) {
      return wait('the bucket takes nothing', 5000 + Math.random() * 10_000, reason);
    }
    if (asset.waits < mostWaits) {
      log.warn({ ...ids, reason }, 'the bucket takes other things, and not this one; it comes back');
      return putOff('the bucket does not take it', reason, 5000, longestWait);
    }
  }
  if (deps.outages.isGeneral(error, asset.id) && asset.waits < 10 * mostWaits) {
    return putOff('the service does not answer', `${reason}; nor does anything else there`, 5000, 300_000);
  }
  if (error instanceof Rejected || error instanceof StorageUnavailable || asset.attempts + 1 >= attemptsFor(error)) {
    log.warn({ ...ids, attempts: asset.attempts + 1, err: error }, 'asset failed');
    return exhausted(reason);
  }
  // A slow file keeps a slot for a whole window, so it waits longer than that.
  const [first, last] = error instanceof TooSlow ? [2 * error.windowMs, 3_600_000] : [1000, 120_000];
  const waitMs = backoff(asset.attempts, first, last);
  log.warn({ ...ids, attempt: asset.attempts + 1, reason }, 'attempt failed; comes back');
  await store.assets.again(lease, waitMs, { spent: true, reason });
  return { outcome: 'attempt failed', reason, retryInMs: Math.round(waitMs) };
}

/** Notes what went wrong and goes on; what is not about this one thing is passed on. */
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
