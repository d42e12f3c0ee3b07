import { Interrupted } from '../floor/errors.ts';
import { every, type Repeated } from '../floor/every.ts';
import type { Log } from '../floor/log.ts';
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
  if (!isHolder) throw new Interrupted('another worker has the asset');
}

/** Until when a lease is held: `until` by the monotonic clock, which may stop while the machine sleeps; `untilDate` by the system clock. */
type Entry = { lease: AssetLease; aborter: AbortController; until: number; untilDate: number };

/**
 * The leases that this process holds, renewed by one heartbeat. When a lease is lost (another worker has the asset, or its
 * connection was paused or ended), its work stops: at once after a notice, otherwise at the next heartbeat.
 */
export class Leases {
  readonly #store: Store;
  readonly #log: Log;
  readonly #timings: Timings;
  readonly #entries = new Map<string, Entry>();
  readonly #heartbeat: Repeated;
  readonly #unsubscribe: () => void;
  #interrupted: string | undefined;
  #beating: Promise<void> | undefined;

  constructor({ store, log, timings }: { store: Store; log: Log; timings: Timings }) {
    this.#store = store;
    this.#log = log;
    this.#timings = timings;
    this.#unsubscribe = store.onNotice(() => void this.#beat());
    // `#beat` logs its failures itself.
    this.#heartbeat = every(timings.heartbeat, () => this.#beat(), { failed: () => {}, later: true });
  }

  /** The lease of an asset whose job came off the queue; undefined when there is nothing to do. */
  async take(assetId: string): Promise<LeasedAsset | undefined> {
    const ends = this.#ends();
    const asset = await this.#store.assets.take(assetId, this.#timings.assetLease);
    return asset && this.#add(asset, ends);
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Interrupts all work, so that it is handed back. */
  interrupt(reason: string): void {
    this.#interrupted = reason;
    for (const { aborter } of this.#entries.values()) aborter.abort(new Interrupted(reason));
  }

  async close(): Promise<void> {
    this.#unsubscribe();
    await this.#heartbeat.stop();
  }

  #beat(): Promise<void> {
    this.#beating ??= this.#renew().finally(() => {
      this.#beating = undefined;
    });
    return this.#beating;
  }

  async #renew(): Promise<void> {
    const mine = [...this.#entries.values()];
    if (mine.length === 0) return;
    const { assetLease } = this.#timings;
    const ends = this.#ends();
    try {
      const leases = mine.map(({ lease }) => lease);
      const kept = await this.#store.assets.renew(leases, assetLease);
      for (const entry of mine) {
        if (kept.has(entry.lease.assetId)) Object.assign(entry, ends);
        else this.#drop(entry, 'this process may no longer work on the asset');
      }
    } catch (err) {
      this.#log.warn({ event: 'heartbeat.failed', err }, 'leases not renewed: the database does not answer');
      for (const entry of mine) {
        if (entry.until < performance.now())
          this.#drop(entry, 'the database was unreachable for longer than the lease');
      }
    }
  }

  /** The end of a lease that is taken or renewed now. */
  #ends(): Pick<Entry, 'until' | 'untilDate'> {
    const { assetLease } = this.#timings;
    return { until: performance.now() + assetLease, untilDate: Date.now() + assetLease };
  }

  #add(asset: OwnedAsset, ends: Pick<Entry, 'until' | 'untilDate'>): LeasedAsset {
    const earlier = this.#entries.get(asset.id);
    if (earlier) this.#drop(earlier, 'its lease ran out, and this process has leased the asset again');
    const aborter = new AbortController();
    const entry: Entry = { lease: leaseOf(asset), aborter, ...ends };
    this.#entries.set(asset.id, entry);
    if (this.#interrupted !== undefined) aborter.abort(new Interrupted(this.#interrupted));
    const isEnding = () =>
      Math.min(entry.until - performance.now(), entry.untilDate - Date.now()) < this.#timings.fenceMargin;
    return {
      asset,
      lease: entry.lease,
      signal: aborter.signal,
      fence: async () => {
        if (isEnding()) await this.#beat();
        aborter.signal.throwIfAborted();
        if (isEnding()) throw new Interrupted('the lease of the asset is running out');
      },
      forget: () => this.#forget(entry),
    };
  }

  #drop(entry: Entry, reason: string): void {
    if (this.#forget(entry)) entry.aborter.abort(new Interrupted(reason));
  }

  /** False: the work has ended, and this process may have leased the asset again. */
  #forget(entry: Entry): boolean {
    return this.#entries.get(entry.lease.assetId) === entry && this.#entries.delete(entry.lease.assetId);
  }
}
