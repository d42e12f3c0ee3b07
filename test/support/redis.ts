import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { freePort } from './ports.ts';
import { until } from './until.ts';

/** How many databases the server of all tests has, and how many of them each worker of the test runner. */
export const redisDatabases = 1024;
const databasesEach = 64;
let taken = 0;

/** An empty database of the server. */
export async function newRedis(server: string): Promise<string> {
  const first = databasesEach * (Number(process.env.VITEST_POOL_ID ?? 1) - 1);
  const url = `${server}/${first + (taken++ % databasesEach)}`;
  const redis = new Redis(url);
  await redis.flushdb();
  redis.disconnect();
  return url;
}

/** A Redis of the test's own, which may be emptied, killed, and started again empty on the same port. */
export async function newRedisServer() {
  const port = await freePort();
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-redis-'));
  const url = `redis://127.0.0.1:${port}`;
  const options = {
    port,
    bind: '127.0.0.1',
    save: '',
    appendonly: 'no',
    'maxmemory-policy': 'noeviction',
    dir: directory,
  };
  let end: () => Promise<void>;

  async function start(): Promise<void> {
    const child = spawn(
      'redis-server',
      Object.entries(options).flatMap(([name, value]) => [`--${name}`, `${value}`]),
      {
        stdio: 'ignore',
      },
    );
    const ended = new Promise((resolve) => child.once('exit', resolve));
    end = async () => {
      child.kill('SIGKILL');
      await ended;
    };
    await until('Redis to answer', () => ask((redis) => redis.ping()).catch(() => undefined));
  }
  async function ask<T>(question: (redis: Redis) => Promise<T>): Promise<T> {
    const redis = new Redis(url, { lazyConnect: true, retryStrategy: () => null, maxRetriesPerRequest: 0 });
    redis.on('error', () => {});
    try {
      await redis.connect();
      return await question(redis);
    } finally {
      redis.disconnect();
    }
  }

  await start();
  return {
    url,
    empty: () => ask((redis) => redis.flushall()),
    async replace(): Promise<void> {
      await end();
      await start();
    },
    async stop(): Promise<void> {
      await end();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
