import { execFile, spawn } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { TestProject } from 'vitest/node';
import { createLog } from '../../src/log.ts';
import { startEmbeddedPostgres } from '../../src/store/embedded.ts';
import { freePort } from './ports.ts';

const run = promisify(execFile);

declare module 'vitest' {
  export interface ProvidedContext {
    postgres: string;
    /** Undefined when no Redis is installed. */
    redis: string | undefined;
    s3: S3Server | undefined;
  }
}

export interface S3Server {
  name: string;
  endpoint: string;
  region: string;
  accessKey: string;
  secretKey: string;
}

/**
 * What the tests run against, started once for all of them: PostgreSQL always (it comes with the packages), Redis and an
 * S3 server when they are installed. What is missing is named, so that nothing is left out silently.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const stops: (() => Promise<unknown>)[] = [];
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-test-'));
  stops.push(() => rm(directory, { recursive: true, force: true }));
  // So that as root, too, the database is in here and goes with it.
  await chmod(directory, 0o755);

  const log = createLog({ level: 'silent', pretty: false });
  const postgres = await startEmbeddedPostgres({ directory: join(directory, 'database'), log });
  stops.push(() => postgres.stop());
  project.provide('postgres', postgres.url);

  const missing: string[] = [];
  const redis = await startRedis(directory, stops);
  if (!redis) missing.push('Redis (redis-server)');
  project.provide('redis', redis);
  const s3 = await startCeph(directory, stops);
  if (!s3) missing.push('an S3 server (radosgw ceph-mon ceph-mgr ceph-osd ceph-common, as root)');
  project.provide('s3', s3);
  if (missing.length > 0) {
    if (process.env.CI) throw new Error(`not installed: ${missing.join(', ')}; here nothing may be left out`);
    process.stdout.write(`\n  Not installed, so its tests are left out: ${missing.join('; ')}\n`);
  }
  return async () => {
    for (const stop of stops.reverse()) await stop();
  };
}

async function startRedis(directory: string, stops: (() => Promise<unknown>)[]): Promise<string | undefined> {
  if (!(await installed('redis-server'))) return undefined;
  const port = await freePort();
  const child = spawn(
    'redis-server',
    [
      '--port',
      String(port),
      '--bind',
      '127.0.0.1',
      '--save',
      '',
      '--appendonly',
      'no',
      '--maxmemory-policy',
      'noeviction',
      '--dir',
      directory,
    ],
    { stdio: 'ignore' },
  );
  stops.push(async () => {
    child.kill();
    await new Promise((resolve) => (child.exitCode === null ? child.once('exit', resolve) : resolve(undefined)));
  });
  await answers(port);
  return `redis://127.0.0.1:${port}`;
}

/** A whole Ceph with its S3 gateway, in memory (see ceph-rgw.sh). */
async function startCeph(directory: string, stops: (() => Promise<unknown>)[]): Promise<S3Server | undefined> {
  if (process.getuid?.() !== 0 || !(await installed('radosgw')) || !(await installed('ceph-mon'))) return undefined;
  const script = join(import.meta.dirname, 'ceph-rgw.sh');
  const env = {
    ...process.env,
    RGW_PORT: String(await freePort()),
    MON_PORT: String(await freePort()),
    S3_ACCESS_KEY: 'testaccesskey',
    S3_SECRET_KEY: 'testsecretkey0123456789',
  };
  const home = join(directory, 'ceph');
  stops.push(() => run('bash', [script, 'stop', home], { env }));
  const { stdout } = await run('bash', [script, 'start', home], { env });
  const facts = Object.fromEntries(
    stdout
      .trim()
      .split('\n')
      .map((line) => line.split(/=(.*)/s).slice(0, 2)),
  );
  return {
    name: 'Ceph RGW',
    endpoint: facts.S3_ENDPOINT,
    region: facts.S3_REGION,
    accessKey: facts.S3_ACCESS_KEY,
    secretKey: facts.S3_SECRET_KEY,
  };
}

async function installed(program: string): Promise<boolean> {
  return run('which', [program]).then(
    () => true,
    () => false,
  );
}

async function answers(port: number): Promise<void> {
  for (let tries = 0; tries < 200; tries++) {
    const up = await new Promise<boolean>((resolve) => {
      const socket = createConnection(port, '127.0.0.1', () => resolve(true));
      socket.once('error', () => resolve(false)).once('connect', () => socket.destroy());
    });
    if (up) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`nothing answers on port ${port}`);
}
