import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../log.ts';
import { type AssetLease, leaseOf } from '../store/assets/leases.ts';
import type { OwnedAsset } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';

export type Leases = ReturnType<typeof createLeases>;

/** An asset that this process works on. `signal` says when to stop, with the reason. */
export interface HeldAsset {
  asset: OwnedAsset;
  lease: AssetLease;
  signal: AbortSignal;
  /**
   * To be asked right before what nobody can undo. A process may have stood still for any time without knowing it; another
   * worker has the asset by then. @throws Interrupted unless the lease is ours for some seconds more
   */
  fence(): Promise<void>;
  end(): void;
}

/** Why work was broken off, other than by an error of its own. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted';
}

/** Ends the work of a worker whose write was refused: another worker has the asset. */
export function mustHold(held: boolean): void {
  if (!held) throw new Interrupted('another worker has the asset');
}

const leaseMs = 20_000;
const beatMs = 5_000;
/** What is asked of a store takes less, or is broken off; a heartbeat late by this much is nothing yet. */
const surelyMs = 8_000;

/**
 * The leases that this process holds, kept by one heartbeat. A lease that is lost (another worker has the asset, or its
 * connection was paused or ended) stops its work: at once when a notice comes, at the next heartbeat otherwise.
 */
export function createLeases({ store, log }: { store: Store; log: Log }) {
  const held = new Map<string, { lease: AssetLease; aborter: AbortController; until: number }>();
  const stopping = new AbortController();
  let interrupted: string | undefined;
  let beating: Promise<void> | undefined;

  const drop = (id: string, reason: string) => {
    held.get(id)?.aborter.abort(new Interrupted(reason));
    held.delete(id);
  };

  async function beat(): Promise<void> {
    const mine = [...held.values()];
    if (mine.length === 0) return;
    const now = performance.now();
    try {
      const kept = await store.assets.renew(
        mine.map((entry) => entry.lease),
        leaseMs,
      );
      for (const entry of mine) {
        if (kept.has(entry.lease.assetId)) entry.until = now + leaseMs;
        else if (held.get(entry.lease.assetId) === entry)
          drop(entry.lease.assetId, 'the asset is no longer ours to work on');
      }
    } catch (err) {
      log.warn({ err }, 'heartbeat: the database does not answer');
      for (const entry of mine) {
        if (entry.until < performance.now())
          drop(entry.lease.assetId, 'the database was away for longer than the lease');
      }
    }
  }
  const beatNow = () => {
    beating ??= beat().finally(() => {
      beating = undefined;
    });
    return beating;
  };

  const silence = store.onNotice(() => void beatNow());
  const running = (async () => {
    while (!stopping.signal.aborted) {
      await sleep(beatMs, undefined, { signal: stopping.signal }).catch(() => {});
      await beatNow();
    }
  })();

  function hold(asset: OwnedAsset, since: number): HeldAsset {
    const lease = leaseOf(asset);
    const aborter = new AbortController();
    const entry = { lease, aborter, until: since + leaseMs };
    held.set(asset.id, entry);
    if (interrupted !== undefined) aborter.abort(new Interrupted(interrupted));
    return {
      asset,
      lease,
      signal: aborter.signal,
      async fence() {
        if (entry.until - performance.now() < surelyMs) await beatNow();
        aborter.signal.throwIfAborted();
        if (entry.until - performance.now() < surelyMs) throw new Interrupted('the lease of the asset is running out');
      },
      end() {
        if (held.get(asset.id) === entry) held.delete(asset.id);
      },
    };
  }

  return {
    /** The lease of an asset whose job came off the queue; undefined when there is nothing to do. */
    async take(assetId: string): Promise<HeldAsset | undefined> {
      const now = performance.now();
      const asset = await store.assets.take(assetId, leaseMs);
      return asset && hold(asset, now);
    },

    get size(): number {
      return held.size;
    },

    /** Breaks all work off, to be handed back. */
    interrupt(reason: string): void {
      interrupted = reason;
      for (const { aborter } of held.values()) aborter.abort(new Interrupted(reason));
    },

    async close(): Promise<void> {
      stopping.abort();
      silence();
      await running;
    },
  };
}
