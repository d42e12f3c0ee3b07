import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { cpus, loadavg, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import pg from 'pg';
import type { Library, LibraryOptions } from '../src/library/index.ts';
import { createLog } from '../src/log.ts';
import { startEmbeddedPostgres } from '../src/store/embedded.ts';
import { newBrowser } from '../test/support/browser.ts';
import { adminOf } from '../test/support/library.ts';
import { freePort } from '../test/support/ports.ts';
import { type S3Server, startRedis, startVersity } from '../test/support/services.ts';

/** The repository's results: each benchmark writes a page of its own. */
const results = join(import.meta.dirname, 'results');

/** What was measured on, for the foot of a table. */
export const machine = () =>
  `${cpus().length} × ${cpus()[0]!.model}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, Node ${process.version}, ` +
  `${new Date().toISOString().slice(0, 10)}; load ${loadavg()[0]!.toFixed(1)} at the end`;

/** Writes `bench/results/NAME.md`, and prints it. */
export function report(name: string, text: string): void {
  mkdirSync(results, { recursive: true });
  writeFileSync(join(results, `${name}.md`), text);
  console.log(text);
}

/** Processor time of a process so far, user and system, in seconds. */
export function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** A figure of /proc/PID/status, `VmRSS` or `VmHWM`, in MiB. */
export const mebibytes = (pid: number, field: 'VmRSS' | 'VmHWM') =>
  Number(new RegExp(`${field}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024;

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  await once(child, 'exit');
}

export type Stage = Awaited<ReturnType<typeof newStage>>;

/**
 * Library, PostgreSQL, and as wished Redis and an S3 server, each a process of its own on this machine; and mirrors, once
 * they are started. Everything goes when it is disposed of.
 */
export async function newStage(options: { library: Partial<LibraryOptions>; redis?: boolean; s3?: boolean }) {
  await using starting = new AsyncDisposableStack();
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-bench-'));
  starting.defer(() => rm(directory, { recursive: true, force: true }));

  const log = createLog({ level: 'silent', pretty: false });
  const postgres = await startEmbeddedPostgres({ directory: join(directory, 'database'), log });
  starting.defer(() => postgres.stop());
  const db = new pg.Pool({ connectionString: postgres.url, max: 2 });
  db.on('error', () => {});
  starting.defer(() => db.end());

  const stops: (() => Promise<unknown>)[] = [];
  starting.defer(async () => {
    for (const stop of stops) await stop();
  });
  const redis = options.redis ? await startRedis(directory, stops) : undefined;
  const s3 = options.s3 ? await startVersity(directory, stops) : undefined;
  if (options.redis && !redis) throw new Error('no redis-server here');
  if (options.s3 && !s3) throw new Error('no versitygw here');
  if (s3) await newBucket(s3, 'mirror');

  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const libraryProcess = fork(join(import.meta.dirname, 'library-server.ts'), [
    '0',
    JSON.stringify({ adminPort: 0, redirectUris: [`${url}/oauth/callback`], ...options.library }),
  ]);
  starting.defer(() => ended(libraryProcess));
  const [library] = (await once(libraryProcess, 'message')) as [Library];

  const environment: Record<string, string> = {
    PATH: process.env.PATH!,
    DATABASE_URL: postgres.url,
    ...(redis && { REDIS_URL: redis }),
    ...(s3 && {
      STORAGE_URL: 's3://mirror/',
      S3_ENDPOINT: s3.endpoint,
      S3_REGION: s3.region,
      S3_FORCE_PATH_STYLE: 'true',
      AWS_ACCESS_KEY_ID: s3.accessKey,
      AWS_SECRET_ACCESS_KEY: s3.secretKey,
    }),
    DATA_DIR: directory,
    PORT: String(port),
    PUBLIC_URL: url,
    ADMIN_TOKEN: 'the-operators-token',
    ENCRYPTION_KEYS: Buffer.alloc(32, 1).toString('base64'),
    LIBRARY_API_URL: library.apiUrl,
    LIBRARY_APP_URL: library.appUrl,
    LIBRARY_CLIENT_ID: library.clientId,
    LIBRARY_CLIENT_SECRET: library.clientSecret,
    SYNC_INTERVAL: '1h',
    LOG_PRETTY: 'false',
  };

  // biome-ignore lint/suspicious/noExplicitAny: the answers of the operator API, read as they come
  async function operator(path: string, body?: object): Promise<any> {
    const response = await fetch(`${url}/api${path}`, {
      ...(body && { method: 'POST', body: JSON.stringify(body) }),
      headers: { authorization: 'Bearer the-operators-token', ...(body && { 'content-type': 'application/json' }) },
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  const stack = starting.move();
  return {
    url,
    db,
    redis,
    s3,
    library,
    libraryPid: libraryProcess.pid!,
    admin: adminOf(library.adminUrl!),
    operator,
    directory,

    /** Starts a mirror, and waits until it has. `profile`: a directory for what V8 has sampled, written at its end. */
    async mirror(
      role: 'all' | 'web' | 'worker' = 'all',
      added: Record<string, string> = {},
      profile = process.env.PROFILE,
    ): Promise<ChildProcess & { pid: number }> {
      const prof = profile ? ['--cpu-prof', `--cpu-prof-dir=${profile}`] : [];
      const main = join(import.meta.dirname, '../src/main.ts');
      const child = spawn(process.execPath, [...prof, main, 'start', ...(role === 'all' ? [] : [role])], {
        env: { ...environment, ...added },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      stack.defer(() => ended(child));
      for await (const text of createInterface(child.stdout)) if (text.includes('"started"')) break;
      child.stdout.resume();
      return child as ChildProcess & { pid: number };
    },

    /** Connects a user of the library; returns the connection's id. */
    async connect(userId = library.users[0]!.id): Promise<string> {
      const browser = newBrowser();
      const consent = (await browser.get((await operator('/connect-links', {})).url)).headers.get('location');
      await browser.visit(`${consent}&login_hint=${userId}`);
      const { rows } = await db.query('SELECT id FROM connections WHERE user_id = $1', [userId]);
      return rows[0].id;
    },

    /** Settles when so many assets are whole in the bucket; returns when that was, by `performance.now()`. */
    async mirrored(count: number): Promise<number> {
      for (;;) {
        const { rows } = await db.query("SELECT count(*)::int AS n FROM assets WHERE state = 'mirrored'");
        if (rows[0].n >= count) return performance.now();
        await sleep(50);
      }
    },

    /** Statements and transactions of PostgreSQL so far, and commands of Redis. */
    async talk(): Promise<{ transactions: number; commands: number }> {
      const { rows } = await db.query(
        'SELECT xact_commit::int AS n FROM pg_stat_database WHERE datname = current_database()',
      );
      return { transactions: rows[0].n, commands: 0 };
    },

    ended,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

export async function newBucket(s3: S3Server, bucket: string): Promise<void> {
  const client = new S3Client({
    endpoint: s3.endpoint,
    region: s3.region,
    forcePathStyle: true,
    credentials: { accessKeyId: s3.accessKey, secretAccessKey: s3.secretKey },
  });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  client.destroy();
}
