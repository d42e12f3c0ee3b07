import type { Store } from '../../store/store.ts';
import type { OperationsDeps } from '../deps.ts';

const recentMs = 60_000;
/** Seconds of transfers before anything is estimated. */
const soonestEstimate = 5;

/** The rate of the last minute. `isEarly`: there were too few transfers for an estimate. */
export async function recentRate({ assets }: Pick<Store, 'assets'>, traffic: OperationsDeps['traffic']) {
  const { count, bytes, seconds } = await assets.recent(recentMs);
  return {
    assetsPerSecond: count / seconds,
    // Large files count during their transfer if this process transfers them, and always when they are done.
    bytesPerSecond: Math.max(bytes / seconds, traffic()),
    isEarly: seconds < soonestEstimate,
  };
}
