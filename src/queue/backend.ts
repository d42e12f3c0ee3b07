import {
  createPostgresBackend,
  getDefaultBackendFactory,
  type Processor,
  Queue,
  Worker,
  type WorkerOptions,
} from 'bullmq';
import type { Cluster, Redis } from 'ioredis';
import type { Log } from '../floor/log.ts';
import { queueTelemetry } from '../tracing/tracing.ts';
import { pausing } from './pause-after-errors.ts';
import { connectRedis, redisProblem } from './redis.ts';

/** Finished jobs that are kept for the queue dashboard. */
const keep = { removeOnComplete: { count: 1000, age: 86_400 }, removeOnFail: { count: 5000, age: 7 * 86_400 } };

/**
 * If the host of PostgreSQL dies, a query that is running fails within half a minute. Without this, it would wait for ever, and so
 * would the dispatcher. A query that is sent after that fails when TCP gives up, after about 15 minutes.
 */
const noticeDeadHost = { keepAlive: true, keepAliveInitialDelayMillis: 10_000 };

/** The prefix of all keys in Redis, in braces, so that all are in one slot of a cluster. */
export const prefixOf = (installation: string) => `{asset-mirror-${installation}}`;

export interface BackendOptions {
  redisUrl?: string | undefined;
  databaseUrl: string;
  /** The mirror whose records the jobs are made from. Each has queues of its own in a shared Redis. */
  installation: string;
  log: Log;
}

/** BullMQ on Redis or, without REDIS_URL, on PostgreSQL. The types of the two connections exclude each other, hence `any`. */
export class Backend {
  readonly redis: Redis | Cluster | undefined;
  /** Why Redis cannot be used; undefined while it can. */
  trouble: string | undefined;
  readonly #log: Log;
  // biome-ignore lint/suspicious/noExplicitAny: see above
  readonly #options: any;
  readonly #backendFactory: unknown;
  readonly #probeKey: string;

  constructor({ redisUrl, databaseUrl, installation, log }: BackendOptions) {
    this.#log = log;
    this.#probeKey = `${prefixOf(installation)}:probe`;
    this.redis = redisUrl ? this.#watch(connectRedis(redisUrl), redisUrl) : undefined;
    const telemetry = queueTelemetry();
    this.#options = {
      ...(this.redis
        ? { connection: this.redis, prefix: prefixOf(installation) }
        : { connection: { connectionString: databaseUrl, migrate: true, ...noticeDeadHost } }),
      ...(telemetry !== undefined && { telemetry }),
    };
    this.#backendFactory = this.redis ? pausing(getDefaultBackendFactory()) : pausing(createPostgresBackend);
  }

  queue<T>(name: string): Queue<T> {
    const options = { ...this.#options, defaultJobOptions: { ...keep, attempts: 1 } };
    const queue: Queue<T> = new (Queue as never as new (...args: unknown[]) => Queue<T>)(
      name,
      options,
      this.#backendFactory,
    );
    queue.on('error', (err) =>
      this.#log.debug({ event: 'queue.connection_failed', err, queue: name }, 'queue connection failed'),
    );
    return queue;
  }

  worker<T>(name: string, work: Processor<T>, settings: Partial<WorkerOptions>): Worker<T> {
    const options = { ...this.#options, ...settings };
    const worker: Worker<T> = new (Worker as never as new (...args: unknown[]) => Worker<T>)(
      name,
      work,
      options,
      this.#backendFactory,
    );
    worker.on('error', (err) =>
      this.#log.debug({ event: 'worker.connection_failed', err, queue: name }, 'worker connection failed'),
    );
    return worker;
  }

  /** @throws if Redis refuses writes: its memory or disk is full, or too few replicas follow it */
  async write(): Promise<void> {
    await this.redis?.set(this.#probeKey, '', 'EX', 60);
  }

  /** Logs once that Redis does not answer, and once that it answers again. */
  #watch<R extends Redis | Cluster>(redis: R, url: string): R {
    redis.on('error', (error: unknown) => {
      const { found, remedy } = redisProblem(error, url);
      if (this.trouble === undefined) {
        this.#log.error(
          { event: 'redis.failed', reason: found, remedy },
          'Redis unreachable; jobs wait, nothing is lost',
        );
      }
      this.trouble = `${found}; ${remedy}`;
    });
    redis.on('ready', () => {
      if (this.trouble !== undefined) this.#log.info({ event: 'redis.recovered' }, 'Redis reachable again');
      this.trouble = undefined;
    });
    return redis;
  }
}
