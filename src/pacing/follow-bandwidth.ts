import type { Log } from '../log.ts';
import type { ConnectionThrottles } from '../source/bandwidth.ts';
import type { Store } from '../store/store.ts';

/** Changes whose notice was missed are found at this interval. */
const checkMs = 30_000;

/**
 * Keeps a process at the bandwidth limit that operators have set, or else at its own (`own`), and each connection at its
 * limit. Returns a function that stops this.
 */
export function followBandwidth(options: {
  store: Store;
  traffic: { limit: number | undefined; setLimit(bytesPerSecond: number | undefined): void };
  throttles: Pick<ConnectionThrottles, 'setLimits'>;
  own: number | undefined;
  log: Log;
}): () => void {
  const { store, traffic, throttles, own, log } = options;
  let newest = 0;
  async function update(): Promise<void> {
    const mine = ++newest;
    // Without the database the limits stay as they are.
    const [set, ofConnections] = await Promise.all([store.settings.bandwidth(), store.connections.bandwidths()]).catch(
      () => [undefined, undefined] as const,
    );
    if (set === undefined || mine !== newest) return;
    throttles.setLimits(ofConnections);
    const limit = set ?? own;
    if (traffic.limit === limit) return;
    traffic.setLimit(limit);
    log.info({ event: 'bandwidth.limit_changed', bytesPerSecond: limit ?? null }, 'bandwidth limit changed');
  }
  void update();
  const unsubscribe = store.onNotice((notice) => {
    if (notice.settings || notice.connectionId !== undefined) void update();
  });
  const timer = setInterval(update, checkMs).unref();
  return () => {
    unsubscribe();
    clearInterval(timer);
  };
}
