import { randomUUID } from 'node:crypto';
import { pipeline, Transform } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { every } from '../floor/every.ts';
import { bothClocks, keepLease } from '../floor/keep-lease.ts';
import type { Log } from '../floor/log.ts';
import { reasonFields, renderReason } from '../floor/reasons.ts';
import type { Timings } from '../floor/timings.ts';
import type { CircuitBreaker } from '../pacing/circuit-breaker.ts';
import { createThrottle } from '../source/bandwidth.ts';
import type { Storage } from '../storage/storage.ts';
import type { Store } from '../store/store.ts';
import type { AssetContents } from '../store/verifications/contents.ts';
import type { ScrubState, Unverified } from '../store/verifications/scrub.ts';
import { compareAsset } from './compare-asset.ts';
import { compareVersions } from './compare-versions.ts';
import { differencesAmong } from './finding.ts';

export interface ScrubDeps {
  store: Store;
  storage: Storage;
  breaker: Pick<CircuitBreaker, 'openReason'>;
  log: Log;
  /** Called with the number of bytes that were read. */
  onRead: (bytes: number) => void;
  instance: string;
  timings: Timings;
  /** Within this time, in ms, each mirrored file is read back. */
  cycle: number;
  /** Bytes per second. */
  bandwidth: number;
}

/** Files are read in a slightly shorter cycle, so that small delays do not make them late. */
const margin = 0.95;
/** The longest pause; also after an error. */
const longestPause = 60_000;
/** How often to check whether transfers have ended. */
const transfersMs = 1000;
/** How long the scrub skips an asset that a worker is changing. */
const movingMs = 60_000;
/** How long the scrub skips an asset with an unreadable object. */
const unreadableMs = 3_600_000;
/** If more assets than this are left alone, the bucket or the workers have a problem. */
const mostLeftAlone = 1000;

/**
 * Reads all mirrored files back within each cycle, the longest unverified first, each with its kept versions, and compares them
 * with their checksums. One process at a time does so, at an even rate and never faster than `bandwidth`, and waits for
 * transfers unless it would be late. What differs is repaired as `verify --repair` does.
 */
export function startScrubbing(deps: ScrubDeps) {
  const { log, timings } = deps;
  const scrubber = new Scrubber(deps);
  const failed = (err: unknown) => log.warn({ event: 'scrub.failed', err }, 'scrub failed, will retry');
  return every(timings.poll, (signal) => scrubber.round(signal), { failed, later: true });
}

export class Scrubber {
  readonly #deps: ScrubDeps;
  readonly #throttled: Storage;
  /** Nothing is due before this time, by the monotonic clock. */
  #notBefore = 0;
  /** Assets that could not be checked, and until when they are left alone. */
  readonly #leftAloneUntil = new Map<string, number>();

  constructor(deps: ScrubDeps) {
    this.#deps = deps;
    this.#throttled = throttled(deps);
  }

  /** Reads all assets that are due now, if no other process does. */
  async round(stop: AbortSignal): Promise<'not due' | undefined> {
    const { store, breaker, instance, timings } = this.#deps;
    if (performance.now() < this.#notBefore || breaker.openReason !== undefined) return 'not due';
    const owner = `${instance} ${randomUUID()}`;
    const leaseMs = timings.verificationLease;
    const since = bothClocks();
    const state = await store.scrub.take(owner, leaseMs);
    if (!state) {
      this.#pause(leaseMs / 2);
      return 'not due';
    }
    const renew = () => store.scrub.renew(owner, leaseMs);
    const lease = keepLease('the scrub', { leaseMs, stop, since, renew });
    try {
      await this.#read(owner, state, lease.signal);
    } catch (error) {
      this.#pause(longestPause);
      if (!lease.signal.aborted) throw error;
    } finally {
      lease.end();
      await store.scrub.release(owner).catch(() => {});
    }
    return undefined;
  }

  #pause(ms: number): void {
    this.#notBefore = performance.now() + Math.min(ms, longestPause);
  }

  async #read(owner: string, first: ScrubState, signal: AbortSignal): Promise<void> {
    const { store, cycle, timings } = this.#deps;
    for (let state: ScrubState | undefined = first; state; ) {
      signal.throwIfAborted();
      if (!isWithin(state.plannedMsAgo, this.#replanAfter)) {
        state = await store.scrub.plan(owner, cycle * margin);
        if (!state) return;
      }
      const next = await store.scrub.next(this.#leftAlone());
      const waitMs = next ? this.#dueIn(state, next) : this.#replanAfter;
      if (!next || waitMs >= timings.poll) return this.#pause(waitMs);
      // With millions of assets, several are due within the time between two rounds.
      if (waitMs > 0) await sleep(waitMs, undefined, { signal });
      if (await this.#waitsForTransfers(state, next)) return this.#pause(transfersMs);
      // An asset that could not be read does not delay the next one.
      if (await this.#check(next, signal)) state = await store.scrub.assetRead(owner);
    }
  }

  /** Every six hours in a cycle of 90 days. */
  get #replanAfter(): number {
    return Math.max(1000, this.#deps.cycle / 360);
  }

  /** In how many ms the next asset is due. */
  #dueIn(state: ScrubState, next: Unverified): number {
    if (state.rate === 0) return this.#replanAfter;
    const dueMs = next.weight / state.rate;
    return isWithin(state.readMsAgo, dueMs) ? dueMs - state.readMsAgo! : 0;
  }

  /** Whether the next asset waits because media is transferred. */
  async #waitsForTransfers(state: ScrubState, next: Unverified): Promise<boolean> {
    const { store, cycle, bandwidth } = this.#deps;
    const isUrgent = next.ageMs > cycle || state.bytesPerSecond > bandwidth / 2;
    return !isUrgent && (await store.scrub.isTransferring());
  }

  #leftAlone(): string[] {
    const now = performance.now();
    for (const [id, until] of this.#leftAloneUntil) if (until <= now) this.#leftAloneUntil.delete(id);
    if (this.#leftAloneUntil.size > mostLeftAlone)
      throw new Error(`${this.#leftAloneUntil.size} assets could not be checked`);
    return [...this.#leftAloneUntil.keys()];
  }

  #leaveAlone(id: string, ms: number): false {
    this.#leftAloneUntil.set(id, performance.now() + ms);
    return false;
  }

  /** Reads one asset, and requests a repair if it is damaged. False: it could not be checked now. */
  async #check({ id }: Unverified, signal: AbortSignal): Promise<boolean> {
    const { store, storage, log } = this.#deps;
    const asset = await store.contents.get(id);
    if (!asset) return false;
    const { findings, versions, learned } = await this.#readAsset(asset, signal);
    const differences = differencesAmong([...findings, ...versions]);
    // Without the right disk or bucket, everything would be missing or different.
    if (differences.length > 0) await storage.check();

    const damaged = differences.filter(({ mark }) => mark !== '!');
    const repairs = damaged.flatMap(({ kind, remedy }) => (kind && remedy ? [{ kind, remedy }] : []));
    const unreadable = differences.find(({ mark }) => mark === '!');
    const objects = damaged.flatMap(({ key, reason }) => (reason ? [{ key, text: renderReason(reason), reason }] : []));
    const found = { ...learned, damaged: objects, repairs, isUnreadable: unreadable !== undefined };
    const { isRepairRequested, isMoving } = await store.scrub.save(asset, found);
    if (damaged.length > 0) {
      const fields = { assetId: id, connectionId: asset.connectionId, objects, repaired: isRepairRequested };
      log.warn({ event: 'asset.damaged', ...fields }, 'asset damaged in the bucket');
    }
    if (unreadable) {
      log.warn(
        { event: 'object.unreadable', assetId: id, key: unreadable.key, ...reasonFields(unreadable.reason!) },
        'object not read, will retry',
      );
      return this.#leaveAlone(id, unreadableMs);
    }
    const isMediaKnown = findings.some((finding) => finding !== 'moving' && finding.kind === 'media');
    // A worker is changing the asset.
    if (isMoving || !(isMediaKnown || isRepairRequested)) return this.#leaveAlone(id, movingMs);
    if (learned.verified.length > 0 || isRepairRequested) return true;
    // Archived, or damaged and not repairable now.
    await store.scrub.cannotVerify(asset);
    return true;
  }

  /** Reads the objects of an asset and of its kept versions. */
  async #readAsset(asset: AssetContents, signal: AbortSignal) {
    const { store } = this.#deps;
    const deps = { store, storage: this.#throttled };
    const { findings, learned, counts } = await compareAsset(deps, asset, { deep: true, signal });
    const kept = await store.versions.ofAsset(asset.id);
    return { findings, versions: await compareVersions(deps, kept, { deep: true, counts, signal }), learned };
  }
}

/** Whether something happened less than `ms` ago. The database's clock may have been set back since. */
const isWithin = (msAgo: number | null, ms: number) => msAgo !== null && msAgo >= 0 && msAgo < ms;

/** The bucket, with reads limited to the bandwidth of the scrub. */
function throttled({ storage, bandwidth, onRead }: ScrubDeps): Storage {
  const throttle = createThrottle(bandwidth);
  return {
    ...storage,
    async get(key, options = {}) {
      const body = await storage.get(key, options);
      if (!body) return undefined;
      const signal = options.signal ?? new AbortController().signal;
      const slowed = new Transform({
        transform(chunk: Buffer, _encoding, done) {
          onRead(chunk.length);
          Promise.resolve(throttle.take(chunk.length, signal)).then(() => done(null, chunk), done);
        },
      });
      pipeline(body, slowed, () => {});
      return slowed;
    },
  };
}
