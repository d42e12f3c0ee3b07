import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  CreateBucketCommand,
  ListMultipartUploadsCommand,
  PutBucketVersioningCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { inject } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { createLog } from '../../src/floor/log.ts';
import type { Timings } from '../../src/floor/timings.ts';
import type { Library } from '../../src/library/index.ts';
import { type Service, startService } from '../../src/service.ts';
import { openDirectory } from '../../src/storage/directory/directory.ts';
import { ours } from '../../src/storage/keys.ts';
import { openS3 } from '../../src/storage/s3/s3.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { newBrowser } from './browser.ts';
import { ask, newDatabase } from './database.ts';
import { newRedis } from './redis.ts';
import type { S3Server } from './services.ts';
import { spawned } from './spawned.ts';
import { shortTimings } from './timings.ts';
import { until } from './until.ts';

/** The stores of a mirror under test; several processes may share them. */
export interface Ground {
  environment: Record<string, string>;
  storage: Storage;
  /** Unfinished and abandoned drafts and uploads in parts. */
  leftovers(): Promise<string[]>;
  port: number;
  publicUrl: string;
  timings: Timings;
  /** Makes everything due that waits for a time. */
  endWaits(): Promise<void>;
  /** The lines of log of each mirror that was started here. */
  logs: (() => string[])[];
  clear(): Promise<void>;
}

/**
 * A new database, a new bucket or directory, and the environment for them. Waits are short, and nothing happens by itself: no
 * scheduled sync, and no download that is restarted because the machine is busy.
 */
export async function newGround(options: {
  /** Given, because the library needs the redirect URI before the mirror starts. */
  port: number;
  redis?: string | undefined;
  s3?: S3Server | undefined;
  /** Whether the bucket has versions. */
  versions?: boolean | undefined;
  environment?: Record<string, string>;
  timings?: Timings;
}): Promise<Ground> {
  const database = await newDatabase();
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-ground-'));
  const publicUrl = `http://127.0.0.1:${options.port}`;
  const { storage, environment, leftovers } = options.s3
    ? await newBucket(options.s3, options.versions === true)
    : {
        storage: await openDirectory({ path: join(directory, 'mirror') }),
        environment: { STORAGE_URL: `file://${directory}/mirror` },
        leftovers: () => readdir(join(directory, 'mirror', '.asset-mirror-tmp')),
      };
  return {
    storage,
    leftovers,
    port: options.port,
    publicUrl,
    timings: options.timings ?? shortTimings,
    logs: [],
    environment: {
      ...environment,
      ...(options.redis && { REDIS_URL: await newRedis(options.redis) }),
      DATABASE_URL: database.url,
      DATA_DIR: directory,
      PUBLIC_URL: publicUrl,
      PORT: String(options.port),
      ENCRYPTION_KEYS: randomBytes(32).toString('base64'),
      SIGNING_KEY: randomBytes(32).toString('base64'),
      ADMIN_TOKEN: 'the-token-of-the-operators',
      SYNC_INTERVAL: '365d',
      SYNC_INTERVAL_ACTIVE: '365d',
      SCRUB_CYCLE: 'off',
      DRILL_INTERVAL: 'off',
      PROCESSING_POLL: '200ms',
      TRANSCRIPT_DELAY: '0s',
      TRANSFER_STALL_TIMEOUT: '30s',
      SHUTDOWN_GRACE: '5s',
      LOG_LEVEL: 'debug',
      LOG_PRETTY: 'false',
      ...options.environment,
    },
    async endWaits() {
      await ask(
        database.url,
        `UPDATE connections SET delayed_until = now() WHERE delayed_until > now();
         UPDATE assets SET next_at = now() WHERE next_at > now();
         UPDATE consents SET next_at = now() WHERE next_at > now()`,
      );
    },
    async clear() {
      await storage.close();
      await database.drop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

async function newBucket(server: S3Server, versions: boolean) {
  const bucket = `test-${randomBytes(6).toString('hex')}`;
  process.env.AWS_ACCESS_KEY_ID = server.accessKey;
  process.env.AWS_SECRET_ACCESS_KEY = server.secretKey;
  const client = new S3Client({ endpoint: server.endpoint, region: server.region, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  const VersioningConfiguration = { Status: 'Enabled' } as const;
  if (versions) await client.send(new PutBucketVersioningCommand({ Bucket: bucket, VersioningConfiguration }));
  const storage = await openS3({
    bucket,
    prefix: 'copy',
    endpoint: server.endpoint,
    region: server.region,
    forcePathStyle: true,
    checksums: 'auto',
    connections: 16,
  });
  return {
    storage,
    leftovers: async () =>
      ((await client.send(new ListMultipartUploadsCommand({ Bucket: bucket }))).Uploads ?? []).map(({ Key }) => Key!),
    environment: {
      STORAGE_URL: `s3://${bucket}/copy`,
      S3_ENDPOINT: server.endpoint,
      S3_REGION: server.region,
      S3_FORCE_PATH_STYLE: 'true',
      AWS_ACCESS_KEY_ID: server.accessKey,
      AWS_SECRET_ACCESS_KEY: server.secretKey,
    },
  };
}

export const libraryEnvironment = (library: Library) => ({
  LIBRARY_API_URL: library.apiUrl,
  LIBRARY_APP_URL: library.appUrl,
  LIBRARY_CLIENT_ID: library.clientId,
  LIBRARY_CLIENT_SECRET: library.clientSecret,
});

/** A mirror in this process, over real HTTP. `lines` is its log. */
export async function startMirror(ground: Ground, library: Library, role: 'all' | 'web' | 'worker' = 'all') {
  const lines: Record<string, unknown>[] = [];
  const config = readConfig({ ...ground.environment, ...libraryEnvironment(library) });
  const log = createLog({
    level: 'debug',
    pretty: false,
    destination: { write: (line: string) => lines.push(JSON.parse(line)) } as never,
  });
  const service: Service = await startService(config, log, role, { timings: ground.timings });
  ground.logs.push(() => lines.map((line) => JSON.stringify(line)));
  return { ...operatorOf(ground), service, store: service.context.store, lines, stop: () => service.stop() };
}

/** A mirror as a process of its own. */
export async function spawnMirror(ground: Ground, library: Library, role: 'all' | 'web' | 'worker' = 'all') {
  const program = ['test/support/main.ts', JSON.stringify(ground.timings)];
  const child = spawn(process.execPath, [...program, 'start', '--role', role], {
    env: { ...spawned, ...ground.environment, ...libraryEnvironment(library) },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  child.stdout.on('data', (chunk) => {
    output += chunk;
  });
  child.stderr.on('data', (chunk) => {
    output += chunk;
  });
  ground.logs.push(() => output.split('\n'));
  // After all its output was read.
  const ended = new Promise<number | null>((resolve) => child.once('close', (code) => resolve(code)));
  const started = () => {
    if (child.exitCode !== null) throw new Error(`the mirror ended with ${child.exitCode}:\n${output}`);
    return output.includes('"started"');
  };
  await until(`the mirror (${role}) to start`, started).catch((error) => {
    child.kill('SIGKILL');
    throw new Error(`${error.message}\n${output}`);
  });
  return {
    ...operatorOf(ground),
    child,
    output: () => output,
    ended,
    async kill(signal: NodeJS.Signals): Promise<number | null> {
      child.kill(signal);
      return ended;
    },
  };
}

/** The operator API, and a browser that connects. */
export function operatorOf(ground: Ground) {
  // biome-ignore lint/suspicious/noExplicitAny: tests say what they expect
  async function api<T = any>(method: string, path: string, body?: unknown): Promise<T> {
    const response = await fetch(`${ground.publicUrl}/api${path}`, {
      method,
      headers: {
        authorization: 'Bearer the-token-of-the-operators',
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return JSON.parse(text);
  }
  return {
    api,
    /** Connects as the library's first user; returns the connection's id. */
    async connect(): Promise<string> {
      const { url } = await api('POST', '/connect-links', {});
      const page = await newBrowser().visit(url);
      if (page.status !== 200) throw new Error(`connecting: ${page.status} ${page.text}`);
      return (await api('GET', '/connections')).connections.at(-1).id;
    },
    async asset(id: string) {
      const { assets } = await api('GET', `/assets?q=${encodeURIComponent(id)}`);
      return assets.find((asset: { id: string }) => asset.id === id);
    },
    /** Waits until an asset is in a state. `failedAttempts`: the log line of each; the row of a mirrored asset no longer counts them. */
    async assetIn(id: string, state: string) {
      let last: unknown;
      return until(`asset ${id} to be ${state}`, async () => {
        const { assets } = await api('GET', `/assets?q=${encodeURIComponent(id)}`);
        last = assets[0];
        const found = assets.find((asset: { id: string; state: string }) => asset.id === id && asset.state === state);
        if (!found) return;
        const failed = (line: string) => line.includes('"attempt failed') && line.includes(`"assetId":"${id}"`);
        return { ...found, failedAttempts: ground.logs.flatMap((lines) => lines().filter(failed)) };
      }).catch(async (error) => {
        const details = await api('GET', `/assets/${encodeURIComponent(id)}`).catch(() => undefined);
        const history = details?.timeline
          .map(({ at, text }: { at: string; text: string }) => `${at} ${text}`)
          .join('\n');
        throw new Error(`${error.message}\nlast seen: ${JSON.stringify(last)}\n${history ?? 'no history'}`);
      });
    },
    /** Waits until nothing is in transfer. */
    async quiet() {
      let last: unknown;
      return until('everything to be mirrored', async () => {
        const status = await api('GET', '/status');
        last = status;
        const { pending, transferring, processing } = status.assets.byState;
        const moving = pending + transferring + processing + status.syncs.waiting + status.syncs.running;
        return moving === 0 && status.outstanding.sidecars === 0 && status;
      }).catch((error) => {
        throw new Error(`${error.message}\nlast: ${JSON.stringify(last)}`);
      });
    },
  };
}

/** The whole object as bytes; undefined when there is none. */
export async function contentOf(storage: Storage, key: string): Promise<Buffer | undefined> {
  const body = await storage.get(key);
  if (!body) return undefined;
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** All keys except for those of the mirror's own objects. */
export async function keysOf(storage: Storage): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of storage.list('')) if (!key.startsWith(ours)) keys.push(key);
  return keys;
}

/** The simplest combination of queue and store, and the fullest one that this run can use: with Redis and S3 if they are available. */
export const grounds = () => {
  const [redis, s3] = [inject('redis'), inject('s3')];
  return [
    { name: 'queues in PostgreSQL, objects in a directory', redis: undefined, s3: undefined },
    ...(redis && s3 ? [{ name: `queues in Redis, objects in ${s3.name}`, redis, s3 }] : []),
    ...(redis && !s3 ? [{ name: 'queues in Redis, objects in a directory', redis, s3: undefined }] : []),
    ...(!redis && s3 ? [{ name: `queues in PostgreSQL, objects in ${s3.name}`, redis: undefined, s3 }] : []),
  ];
};

/** The most complete one of `grounds`, for tests that do not depend on them. */
export const richest = () => grounds().at(-1)!;
