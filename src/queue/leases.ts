import { Interrupted, LeaseLost } from '../floor/errors.ts';
import { bothClocks, keepLease } from '../floor/keep-lease.ts';
import type { Timings } from '../floor/timings.ts';
import { type AssetLease, leaseOf } from '../store/assets/leases.ts';
import type { OwnedAsset } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';

/** An asset that this process works on. `signal` is aborted, with the reason, when the work must stop. */
export interface LeasedAsset {
  asset: OwnedAsset;
  lease: AssetLease;
  signal: AbortSignal;
  /**
   * Call it right before something that cannot be undone: while the process was suspended, another worker may have got the asset.
   * @throws Interrupted unless the lease is ours for some seconds more
   */
  fence(): Promise<void>;
  /** Stops renewing it in this process. The lease in the row ends with the last write about the asset, or expires. */
  forget(): void;
}

/** Ends the work of a worker whose write was refused: another worker has the asset. */
export function requireLease(isHolder: boolean): void {
  if (!isHolder) throw new LeaseLost('the asset');
}

/**
 * The leases that this process holds. When one is lost (another worker has the asset, or its connection was paused or ended), its
 * work stops: at once after a notice, otherwise when it would be renewed.
 */
export class Leases {
  readonly #store: Store;
  readonly #leaseMs: number;
  readonly #held = new Set<{ asset: OwnedAsset } & Pick<ReturnType<typeof keepLease>, 'check' | 'lose'>>();
  readonly #stopping = new AbortController();
  readonly #unsubscribe: () => void;

  constructor({ store, timings }: { store: Store; timings: Timings }) {
    this.#store = store;
    this.#leaseMs = timings.assetLease;
    this.#unsubscribe = store.onNotice(({ connectionId }) => {
      for (const { asset, check } of this.#held) {
        if (connectionId === undefined || asset.connectionId === connectionId) void check();
      }
    });
  }

  /** The lease of an asset whose job came off the queue; undefined when there is nothing to do. */
  async take(assetId: string): Promise<LeasedAsset | undefined> {
    const since = bothClocks();
    const leaseMs = this.#leaseMs;
    const { assets } = this.#store;
    const asset = await assets.take(assetId, leaseMs);
    if (!asset) return undefined;
    // This process had it before, and does not know yet that this lease has ended.
    for (const earlier of this.#held) if (earlier.asset.id === assetId) earlier.lose();
    const lease = leaseOf(asset);
    const renew = () => assets.renew(lease, leaseMs);
    const { signal, check, lose, fence, end } = keepLease(`asset ${assetId}`, {
      leaseMs,
      stop: this.#stopping.signal,
      renew,
      since,
    });
    const held = { asset, check, lose };
    this.#held.add(held);
    const forget = () => {
      end();
      this.#held.delete(held);
    };
    return { asset, lease, signal, fence, forget };
  }

  get size(): number {
    return this.#held.size;
  }

  /** Interrupts all work, so that it is handed back. */
  interrupt(reason: string): void {
    this.#stopping.abort(new Interrupted(reason));
  }

  close(): void {
    this.#unsubscribe();
  }
}
