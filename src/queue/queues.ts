import { setTimeout as sleep } from 'node:timers/promises';
import type { Processor, Queue, Worker } from 'bullmq';
import { defaultTimings, type Timings } from '../floor/timings.ts';
import { within } from '../floor/within.ts';
import type { QueuedAsset } from '../store/assets/due.ts';
import { Backend, type BackendOptions } from './backend.ts';

/** Jobs contain ids only: the queue dashboard shows them, and the records have the rest. */
export interface SyncJob {
  connectionId: string;
}
export interface AssetJob {
  assetId: string;
}
type AssetJobName = 'mirror-asset' | 'follow-up';

export type QueueName = 'syncs' | 'assets';

/** Jobs of syncs per call. With many more, Redis and this process would do nothing else meanwhile. */
const addedAtOnce = 1000;

/** Time limit for adding jobs that the dispatcher adds, too: while Redis does not answer, it would not end. */
const offerMs = 2000;

/** Time limit for closing the queues: while Redis does not answer, it would not end. */
const closeMs = 1000;

/**
 * The job queues. They are not the source of truth: every job can be recreated from the records, and adding one that is
 * there already does nothing.
 */
export class Queues {
  readonly syncs: Queue<SyncJob>;
  readonly assets: Queue<AssetJob>;
  readonly #backend: Backend;
  readonly #timings: Timings;
  readonly #opened: Pick<Queue, 'waitUntilReady'>[];

  constructor({ timings = defaultTimings, ...options }: BackendOptions & { timings?: Timings }) {
    this.#backend = new Backend(options);
    this.#timings = timings;
    this.syncs = this.#backend.queue<SyncJob>('syncs');
    this.assets = this.#backend.queue<AssetJob>('assets');
    this.#opened = [this.syncs, this.assets];
  }

  /**
   * Adds the next jobs of assets, in this order; jobs that are on the queue stay where they are. A job is identified by
   * asset and last lease: one whose lease has just ended does not block the next.
   */
  async addAssets(assets: QueuedAsset[]): Promise<void> {
    if (assets.length === 0) return;
    await this.assets.addBulk(
      assets.map(({ id, state, lease, traceparent }) => ({
        name: (state === 'mirrored' ? 'follow-up' : 'mirror-asset') satisfies AssetJobName,
        data: { assetId: id },
        opts: {
          deduplication: { id: `${id} ${lease}` },
          // Part of the trace of the sync that found the asset, in the form in which BullMQOtel reads it.
          ...(traceparent && { telemetry: { metadata: JSON.stringify({ traceparent }) } }),
        },
      })),
    );
  }

  /** For each connection, adds a job that runs its waiting syncs. */
  async addSyncs(connectionIds: string[]): Promise<void> {
    const jobs = connectionIds.map((connectionId) => ({
      name: 'sync',
      data: { connectionId },
      opts: { deduplication: { id: `sync ${connectionId}`, keepLastIfActive: true } },
    }));
    for (let i = 0; i < jobs.length; i += addedAtOnce) await this.syncs.addBulk(jobs.slice(i, i + addedAtOnce));
  }

  /** The same, but waits at most 2 s, and never throws: the dispatcher also finds the syncs in the database. */
  async offerSyncs(connectionIds: string[]): Promise<void> {
    await within(offerMs, this.addSyncs(connectionIds)).catch(() => {});
  }

  worker<T>(name: QueueName, work: Processor<T>, { concurrency }: { concurrency: number }): Worker<T> {
    const worker = this.#backend.worker(name, work, {
      concurrency,
      // A job may be interrupted by any number of deploys: the records count attempts, not the queue.
      maxStalledCount: 1000,
      lockDuration: this.#timings.jobLock,
      stalledInterval: this.#timings.stalledCheck,
      // Happens only after the queue could not be reached.
      runRetryDelay: 2000,
      autorun: false,
    });
    this.#opened.push(worker);
    return worker;
  }

  /**
   * Waits for the first connections to PostgreSQL; Redis may come later. If one fails, BullMQ keeps its error for ever (see
   * bullmq-issues.md). @throws that error
   */
  async ready(): Promise<void> {
    if (!this.#backend.redis) await Promise.all(this.#opened.map((each) => each.waitUntilReady()));
  }

  async counts(): Promise<Record<QueueName, Record<string, number>>> {
    const states = ['waiting', 'active', 'delayed', 'failed', 'completed'] as const;
    const queues = [this.syncs, this.assets];
    const [syncs, assets] = await Promise.all(queues.map((queue) => queue.getJobCounts(...states)));
    return { syncs: syncs!, assets: assets! };
  }

  /** Seconds since the longest-waiting job was added; 0: none waits. */
  async oldest(): Promise<Record<QueueName, number>> {
    const [syncs, assets] = await Promise.all([secondsWaited(this.syncs), secondsWaited(this.assets)]);
    return { syncs, assets };
  }

  /** False while Redis does not answer: then no call returns, not even a close. */
  get answers(): boolean {
    return this.#backend.redis === undefined || this.#backend.redis.status === 'ready';
  }

  /** @throws Error if the queues cannot be used, at once if it is known why */
  async check(): Promise<void> {
    if (this.#backend.trouble !== undefined) throw new Error(this.#backend.trouble);
    await this.#backend.write();
    await this.assets.getJobCounts('active');
  }

  async close(): Promise<void> {
    const closed = Promise.allSettled([this.syncs.close(), this.assets.close()]);
    await Promise.race([closed, sleep(closeMs, undefined, { ref: false })]);
    this.#backend.redis?.disconnect();
  }
}

async function secondsWaited(queue: Queue): Promise<number> {
  // Counted from the newest, because `getJobs` in ascending order begins with another job on PostgreSQL (see bullmq-issues.md).
  const last = (await queue.getWaitingCount()) - 1;
  const [job] = last < 0 ? [] : await queue.getJobs(['waiting'], last, last, false);
  return job ? Math.max(0, Date.now() - job.timestamp) / 1000 : 0;
}
