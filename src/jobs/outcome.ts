import { Disconnected, Rejected, RetryLater, reasonOf, StorageUnavailable } from '../errors.ts';
import type { Log } from '../log.ts';
import { passing } from '../source/http.ts';
import type { Store } from '../store/store.ts';
import type { Gate } from './gate.ts';
import { type HeldAsset, Interrupted } from './turns.ts';

/** What a job says of itself in the queue dashboard. */
export interface Outcome {
  outcome: string;
  reason?: string;
  at?: Date;
}

/** A fault of the service or the network may pass; one of the file itself rarely does. */
const attemptsFor = (error: unknown) => (passing(error) ? 12 : 5);

/** 1 s, 2 s, 4 s … 2 min, each with up to a quarter more. */
function backoff(attempts: number): number {
  return Math.min(1000 * 2 ** attempts, 120_000) * (1 + Math.random() / 4);
}

/**
 * Sorts an error of a job by what it is (see errors.ts), and gives the asset back accordingly. `exhausted` decides what
 * becomes of an asset that has used up its attempts, or that can never work.
 */
export async function settle(
  deps: { store: Store; gate: Gate; log: Log },
  held: HeldAsset,
  error: unknown,
  exhausted: (reason: string) => Promise<Outcome>,
): Promise<Outcome> {
  const { store, log } = deps;
  const { asset, turn, signal } = held;
  const ids = { connectionId: asset.connectionId, assetId: asset.id };
  const wait = async (outcome: string, at: Date, reason: string | null = null): Promise<Outcome> => {
    await store.assets.again(turn, at, { spent: false, reason });
    return { outcome, at, ...(reason && { reason }) };
  };

  if (signal.aborted || error instanceof Interrupted || error instanceof Disconnected) {
    log.debug({ ...ids, reason: reasonOf(signal.reason ?? error) }, 'handed back');
    return wait('handed back', new Date());
  }
  const reason = reasonOf(error);
  if (error instanceof RetryLater) {
    if (error.scope === 'connection') {
      await store.connections.park(asset.connectionId, error.at, reason);
      log.warn({ ...ids, until: error.at, reason }, 'connection parked');
    }
    return wait('later', error.at, reason);
  }
  if (error instanceof StorageUnavailable) {
    deps.gate.close(error);
    return wait('the bucket takes nothing', new Date(Date.now() + 5000 + Math.random() * 10_000), reason);
  }
  if (error instanceof Rejected || asset.attempts + 1 >= attemptsFor(error)) {
    log.warn({ ...ids, attempts: asset.attempts + 1, err: error }, 'asset failed');
    return exhausted(reason);
  }
  const at = new Date(Date.now() + backoff(asset.attempts));
  log.info({ ...ids, attempt: asset.attempts + 1, reason }, 'attempt failed; comes back');
  await store.assets.again(turn, at, { spent: true, reason });
  return { outcome: 'attempt failed', reason, at };
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
