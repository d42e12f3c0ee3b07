import { setTimeout as sleep } from 'node:timers/promises';
import { type Processor, Queue, Worker, type WorkerOptions } from 'bullmq';
import type { Log } from '../log.ts';
import type { QueuedAsset } from '../store/assets/due.ts';
import { queueTelemetry } from '../tracing/tracing.ts';
import { postgresBackend } from './postgres-backend.ts';
import { connectRedis } from './redis.ts';

export type Queues = ReturnType<typeof openQueues>;

/** Jobs hold ids only: they can be read in the queue dashboard, and all else is in the records. */
export interface SyncJob {
  connectionId: string;
  /** On a scheduled job: the run it asks for. */
  mode?: 'incremental' | 'full';
}
export interface AssetJob {
  assetId: string;
}
export type AssetJobName = 'mirror-asset' | 'follow-up';

export const queueNames = ['syncs', 'assets'] as const;
export type QueueName = (typeof queueNames)[number];

/** What is kept of finished jobs, for people who look at the dashboard. */
const keep = { removeOnComplete: { count: 1000, age: 86_400 }, removeOnFail: { count: 5000, age: 7 * 86_400 } };

/** Of all keys in Redis. */
export const prefixOf = (installation: string) => `{asset-mirror-${installation}}`;

/**
 * The conveyor: BullMQ on Redis, or on PostgreSQL when there is none. Nothing here is the truth. Every job can be made
 * again from the records, and adding one that is there already does nothing.
 */
export function openQueues(options: {
  redisUrl?: string | undefined;
  databaseUrl: string;
  /** Of the records that the jobs are made from. In a Redis, each has queues of its own. */
  installation: string;
  log: Log;
}) {
  const { log } = options;
  const redis = options.redisUrl ? connectRedis(options.redisUrl, { maxRetriesPerRequest: null }) : undefined;
  let told = false;
  redis?.on('error', (err) => {
    if (!told) log.error({ err }, 'Redis cannot be reached; jobs wait, nothing is lost');
    told = true;
  });
  redis?.on('ready', () => {
    if (told) log.info('Redis is back');
    told = false;
  });

  // The same options for both backends; their types differ only in the connection.
  // biome-ignore lint/suspicious/noExplicitAny: the two connections' types exclude each other
  const base: any = redis
    ? // In braces: all keys are in one slot of a cluster, as scripts want it.
      { connection: redis, prefix: prefixOf(options.installation) }
    : { connection: { connectionString: options.databaseUrl, migrate: true } };
  const telemetry = queueTelemetry();
  if (telemetry) base.telemetry = telemetry;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  const backend: any[] = redis ? [] : [postgresBackend];

  const open = <T>(name: QueueName): Queue<T> => {
    const queue: Queue<T> = new (Queue as never as new (...args: unknown[]) => Queue<T>)(
      name,
      { ...base, defaultJobOptions: { ...keep, attempts: 1 } },
      ...backend,
    );
    queue.on('error', (err) => log.debug({ err, queue: name }, 'queue connection'));
    return queue;
  };
  const queues = { syncs: open<SyncJob>('syncs'), assets: open<AssetJob>('assets') };
  const opened: Pick<Queue, 'waitUntilReady'>[] = [queues.syncs, queues.assets];
  const firstWaiting = async (name: QueueName) => {
    // Counted from the newest. To be reported, BullMQ 6.7.0: `getJobs(['waiting'], 0, 0, true)` is the oldest job on Redis and
    // the newest on PostgreSQL, as `QueueGetters.getRanges` reverses a page that `get_range` has cut from the newest.
    const last = (await queues[name].getWaitingCount()) - 1;
    return last < 0 ? [] : queues[name].getJobs(['waiting'], last, last, false);
  };

  return {
    ...queues,

    /**
     * Puts assets' next jobs on the queue, in this order; those that are on it already stay where they are. A job is known
     * by the asset and its last lease: one that has just ended its lease, and not yet its job, is not in the way of the next.
     */
    async addAssets(assets: QueuedAsset[]): Promise<void> {
      if (assets.length === 0) return;
      await queues.assets.addBulk(
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
    },

    /** Wakes the connection's runs, which are in the records. */
    async addSync(connectionId: string): Promise<void> {
      await queues.syncs.add(
        'sync',
        { connectionId },
        { deduplication: { id: `sync ${connectionId}`, keepLastIfActive: true } },
      );
    },

    worker<T>(name: QueueName, work: Processor<T>, workerOptions: { concurrency: number }): Worker<T> {
      const settings: Partial<WorkerOptions> = {
        concurrency: workerOptions.concurrency,
        // A job may be interrupted by any number of deploys: the records count attempts, not the queue.
        maxStalledCount: 1000,
        // How long the job of a process that was killed stays with it.
        lockDuration: 15_000,
        stalledInterval: 10_000,
        // After the queue could not be reached.
        runRetryDelay: 2000,
        autorun: false,
      };
      const worker: Worker<T> = new (Worker as never as new (...args: unknown[]) => Worker<T>)(
        name,
        work,
        { ...base, ...settings },
        ...backend,
      );
      worker.on('error', (err) => log.debug({ err, queue: name }, 'worker connection'));
      opened.push(worker);
      return worker;
    },

    /**
     * Waits for the first connections to PostgreSQL; Redis may come later. To be reported, BullMQ 6.7.0: where the first one
     * fails, `waitUntilReady` of `PostgresConnection` and `PostgresQueueBackend` keeps its error for ever. @throws that error
     */
    async ready(): Promise<void> {
      if (!redis) await Promise.all(opened.map((each) => each.waitUntilReady()));
    },

    async counts(): Promise<Record<QueueName, Record<string, number>>> {
      const states = ['waiting', 'active', 'delayed', 'failed', 'completed'] as const;
      const [syncs, assets] = await Promise.all([
        queues.syncs.getJobCounts(...states),
        queues.assets.getJobCounts(...states),
      ]);
      return { syncs, assets };
    },

    /** Seconds since the job was due that has waited longest for a worker; 0: none waits. */
    async oldest(): Promise<Record<QueueName, number>> {
      const age = async (name: QueueName) => {
        // What has fallen due stays among the delayed ones until a worker comes.
        const first = await Promise.all([firstWaiting(name), queues[name].getJobs(['delayed'], 0, 0, true)]);
        const due = first.flat().map((job) => job.timestamp + (job.opts.delay ?? 0));
        return Math.max(0, Date.now() - Math.min(Date.now(), ...due)) / 1000;
      };
      const [syncs, assets] = await Promise.all([age('syncs'), age('assets')]);
      return { syncs, assets };
    },

    /** False while Redis is away: then nothing that is asked of a queue is answered, not even a goodbye. */
    get answers(): boolean {
      return redis === undefined || redis.status === 'ready';
    },

    async check(): Promise<void> {
      await queues.assets.getJobCounts('active');
    },

    async close(): Promise<void> {
      // A Redis that is away cannot be told goodbye, and nothing else must wait for that.
      const told = Promise.allSettled([queues.syncs.close(), queues.assets.close()]);
      await Promise.race([told, sleep(1000, undefined, { ref: false })]);
      redis?.disconnect();
    },
  };
}
