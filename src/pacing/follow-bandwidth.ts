import { type Bandwidth, bandwidthAt } from '../bandwidth-limit.ts';
import type { Log } from '../log.ts';
import type { ConnectionThrottles } from '../source/bandwidth.ts';
import type { Store } from '../store/store.ts';

/** Changes whose notice was missed are found at this interval. */
const checkMs = 30_000;
/** How often timetables are compared with the time. */
const tickMs = 1000;

/**
 * Keeps a process at the bandwidth limit that operators have set, or else at its own (`own`), and each connection at its
 * limit; by their timetables, if they have any. Returns a function that stops this.
 */
export function followBandwidth(options: {
  store: Store;
  traffic: { limit: number | undefined; setLimit(bytesPerSecond: number | undefined): void };
  throttles: Pick<ConnectionThrottles, 'setLimits'>;
  own: Bandwidth | undefined;
  log: Log;
}): () => void {
  const { store, traffic, throttles, own, log } = options;
  let newest = 0;
  let set: Bandwidth | null = null;
  let ofConnections: ReadonlyMap<string, Bandwidth> = new Map();

  function apply(): void {
    const rates = [...ofConnections].map(([id, limit]) => [id, bandwidthAt(limit)] as const);
    throttles.setLimits(new Map(rates.filter((pair): pair is [string, number] => pair[1] !== null)));
    const rate = bandwidthAt(set ?? own) ?? undefined;
    if (traffic.limit === rate) return;
    traffic.setLimit(rate);
    log.info({ event: 'bandwidth.limit_changed', bytesPerSecond: rate ?? null }, 'bandwidth limit changed');
  }

  async function update(): Promise<void> {
    const mine = ++newest;
    // Without the database the limits stay as they are.
    const found = await Promise.all([store.settings.bandwidth(), store.connections.bandwidths()]).catch(
      () => undefined,
    );
    if (!found || mine !== newest) return;
    [set, ofConnections] = found;
    apply();
  }
  void update();
  const unsubscribe = store.onNotice((notice) => {
    if (notice.settings || notice.connectionId !== undefined) void update();
  });
  const timer = setInterval(update, checkMs).unref();
  const ticks = setInterval(apply, tickMs).unref();
  return () => {
    unsubscribe();
    clearInterval(timer);
    clearInterval(ticks);
  };
}
