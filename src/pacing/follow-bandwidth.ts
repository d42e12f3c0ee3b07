import type { Log } from '../log.ts';
import type { Lines } from '../source/bandwidth.ts';
import type { Store } from '../store/store.ts';

/** A notice may be missed; then it is found here. */
const lookMs = 30_000;

/**
 * Keeps a process at the limit that operators have set, or at its own where they have set none; and each connection at its
 * own. Returns how to stop that.
 */
export function followBandwidth(options: {
  store: Store;
  traffic: { limit: number | undefined; setLimit(bytesPerSecond: number | undefined): void };
  lines: Pick<Lines, 'setLimits'>;
  own: number | undefined;
  log: Log;
}): () => void {
  const { store, traffic, lines, own, log } = options;
  let newest = 0;
  async function look(): Promise<void> {
    const mine = ++newest;
    // While the database is away the limits stay as they are.
    const [set, ofConnections] = await Promise.all([store.settings.bandwidth(), store.connections.bandwidths()]).catch(
      () => [undefined, undefined] as const,
    );
    if (set === undefined || mine !== newest) return;
    lines.setLimits(ofConnections);
    const limit = set ?? own;
    if (traffic.limit === limit) return;
    traffic.setLimit(limit);
    log.info({ bytesPerSecond: limit ?? null }, 'bandwidth limit changed');
  }
  void look();
  const silence = store.onNotice((notice) => {
    if (notice.settings || notice.connectionId !== undefined) void look();
  });
  const timer = setInterval(look, lookMs).unref();
  return () => {
    silence();
    clearInterval(timer);
  };
}
