import { type Bandwidth, bandwidthAt } from '../floor/bandwidth-limit.ts';
import type { Log } from '../floor/log.ts';
import type { ConnectionThrottles } from '../source/bandwidth.ts';
import type { Store } from '../store/store.ts';

/** How often the limits are read again, in case a notice of a change was lost. */
const checkMs = 30_000;
/** How often timetables are compared with the time. */
const tickMs = 1000;

/**
 * Applies the limit that operators set to this process, or else `own` (BANDWIDTH_LIMIT), and the limit of each connection. A
 * timetable changes a limit with the time. Returns a function that stops this.
 */
export function followBandwidth(options: {
  store: Store;
  traffic: { limit: number | undefined; setLimit(bytesPerSecond: number | undefined): void };
  throttles: Pick<ConnectionThrottles, 'setLimits'>;
  own: Bandwidth | undefined;
  log: Log;
}): () => void {
  const { store, traffic, throttles, own, log } = options;
  let lastRequest = 0;
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
    const request = ++lastRequest;
    // Without the database the limits stay as they are.
    const found = await Promise.all([store.settings.bandwidth(), store.connections.bandwidths()]).catch(
      () => undefined,
    );
    if (!found || request !== lastRequest) return;
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
