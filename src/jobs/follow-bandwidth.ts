import type { Log } from '../log.ts';
import type { Store } from '../store/store.ts';

/** A notice may be missed; then it is found here. */
const lookMs = 30_000;

/** Keeps a process at the limit that operators have set, or at its own where they have set none. Returns how to stop that. */
export function followBandwidth(options: {
  store: Store;
  traffic: { limit: number | undefined; setLimit(bytesPerSecond: number | undefined): void };
  own: number | undefined;
  log: Log;
}): () => void {
  const { store, traffic, own, log } = options;
  let newest = 0;
  async function look(): Promise<void> {
    const mine = ++newest;
    // While the database is away the limit stays as it is.
    const set = await store.settings.bandwidth().catch(() => undefined);
    const limit = set ?? own;
    if (set === undefined || mine !== newest || traffic.limit === limit) return;
    traffic.setLimit(limit);
    log.info({ bytesPerSecond: limit ?? null }, 'bandwidth limit changed');
  }
  void look();
  const silence = store.onNotice((notice) => {
    if (notice.settings) void look();
  });
  const timer = setInterval(look, lookMs).unref();
  return () => {
    silence();
    clearInterval(timer);
  };
}
