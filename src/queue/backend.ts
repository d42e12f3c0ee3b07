import { type Processor, Queue, Worker, type WorkerOptions } from 'bullmq';
import type { Cluster, Redis } from 'ioredis';
import type { Log } from '../log.ts';
import { queueTelemetry } from '../tracing/tracing.ts';
import { postgresBackend } from './postgres-backend.ts';
import { connectRedis } from './redis.ts';

/** What is kept of finished jobs, for people who look at the dashboard. */
const keep = { removeOnComplete: { count: 1000, age: 86_400 }, removeOnFail: { count: 5000, age: 7 * 86_400 } };

/** Of all keys in Redis. In braces, so that all are in one slot of a cluster. */
export const prefixOf = (installation: string) => `{asset-mirror-${installation}}`;

export interface BackendOptions {
  redisUrl?: string | undefined;
  databaseUrl: string;
  /** The mirror whose records the jobs are made from. Each has queues of its own in a shared Redis. */
  installation: string;
  log: Log;
}

/** BullMQ on Redis, or on PostgreSQL without one. The types of the two connections exclude each other, hence `any`. */
export class Backend {
  readonly redis: Redis | Cluster | undefined;
  readonly #log: Log;
  // biome-ignore lint/suspicious/noExplicitAny: see above
  readonly #base: any;
  // biome-ignore lint/suspicious/noExplicitAny: see above
  readonly #more: any[];

  constructor({ redisUrl, databaseUrl, installation, log }: BackendOptions) {
    this.#log = log;
    this.redis = redisUrl ? watched(connectRedis(redisUrl, { maxRetriesPerRequest: null }), log) : undefined;
    const telemetry = queueTelemetry();
    this.#base = {
      ...(this.redis
        ? { connection: this.redis, prefix: prefixOf(installation) }
        : { connection: { connectionString: databaseUrl, migrate: true } }),
      ...(telemetry !== undefined && { telemetry }),
    };
    this.#more = this.redis ? [] : [postgresBackend];
  }

  queue<T>(name: string): Queue<T> {
    const options = { ...this.#base, defaultJobOptions: { ...keep, attempts: 1 } };
    const queue: Queue<T> = new (Queue as never as new (...args: unknown[]) => Queue<T>)(name, options, ...this.#more);
    queue.on('error', (err) =>
      this.#log.debug({ event: 'queue.connection_failed', err, queue: name }, 'queue connection failed'),
    );
    return queue;
  }

  worker<T>(name: string, work: Processor<T>, settings: Partial<WorkerOptions>): Worker<T> {
    const options = { ...this.#base, ...settings };
    const worker: Worker<T> = new (Worker as never as new (...args: unknown[]) => Worker<T>)(
      name,
      work,
      options,
      ...this.#more,
    );
    worker.on('error', (err) =>
      this.#log.debug({ event: 'worker.connection_failed', err, queue: name }, 'worker connection failed'),
    );
    return worker;
  }
}

/** Logs once that Redis is away, and once that it is back. */
function watched<R extends Redis | Cluster>(redis: R, log: Log): R {
  let isAway = false;
  redis.on('error', (err: unknown) => {
    if (!isAway) log.error({ event: 'redis.failed', err }, 'Redis unreachable; jobs wait, nothing is lost');
    isAway = true;
  });
  redis.on('ready', () => {
    if (isAway) log.info({ event: 'redis.recovered' }, 'Redis reachable again');
    isAway = false;
  });
  return redis;
}
