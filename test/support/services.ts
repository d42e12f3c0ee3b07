import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { glob, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { TestProject } from 'vitest/node';
import { createLog } from '../../src/floor/log.ts';
import { Queues } from '../../src/queue/queues.ts';
import { minimalEnvironment, openCluster } from '../../src/store/embedded/cluster.ts';
import { openStore } from '../../src/store/store.ts';
import type { Certificates } from './certificates.ts';
import { startContainers } from './containers.ts';
import { ask } from './database.ts';
import { installed } from './installed.ts';
import { freePort } from './ports.ts';
import { redisDatabases } from './redis.ts';
import { until } from './until.ts';

const run = promisify(execFile);

declare module 'vitest' {
  export interface ProvidedContext {
    postgres: string;
    /** The database that new ones are copies of. */
    template: string;
    /** Undefined when no Redis is installed. */
    redis: string | undefined;
    s3: S3Server | undefined;
    /** A store that accepts trailing checksums and keeps checksums of whole objects, which Ceph does not. */
    s3modern: S3Server | undefined;
    /** The library of faketime, which gives a process another clock. Undefined when it is not installed. */
    faketime: string | undefined;
    /** Whether images can be built and run here. */
    engine: boolean;
  }
}

type Stops = (() => Promise<unknown>)[];

export interface S3Server {
  name: string;
  endpoint: string;
  region: string;
  accessKey: string;
  secretKey: string;
}

/**
 * The servers of the tests, started once: containers if there is an engine; otherwise PostgreSQL (from the npm package), and
 * Redis and S3 servers if they are installed. Missing servers are reported, so that nothing is skipped silently.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const stops: Stops = [];
  const stop = async () => {
    for (const end of stops.splice(0).reverse()) await end();
  };
  try {
    await start(project, stops);
  } catch (error) {
    // Otherwise servers that have started would outlive the run.
    await stop();
    throw error;
  }
  return stop;
}

async function start(project: TestProject, stops: Stops): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-test-'));
  // A process that is just ending may still write its compile cache.
  stops.push(() => rm(directory, { recursive: true, force: true, maxRetries: 10 }));

  process.env.NODE_COMPILE_CACHE = join(directory, 'compile-cache');
  const containers = await startContainers(stops);
  project.provide('engine', containers !== undefined);
  if (!containers) say('No container engine here, so the tests of the image are skipped');

  // All at once: Ceph takes the longest.
  const [postgres, redis, s3, s3modern, faketime] = await Promise.all([
    containers?.postgres ?? startPostgres(directory, stops),
    containers?.redis ?? startRedis(directory, stops),
    startCeph(directory, stops),
    containers?.s3 ?? startVersity(directory, stops),
    findFaketime(),
  ]);
  project.provide('postgres', postgres);
  project.provide('template', await makeTemplate(postgres));
  project.provide('redis', redis);
  project.provide('s3', s3);
  project.provide('s3modern', s3modern);
  project.provide('faketime', faketime);

  // Few systems have the Go that builds versitygw, so a run without versitygw is no error in CI either.
  if (!s3modern) say('No versitygw here, so the tests on an S3 server with checksums of objects are skipped');
  if (!(await installed('dex'))) say('No dex here, so the tests of the sign-in with Dex are skipped');
  const missing = [
    ...(redis ? [] : ['Redis (redis-server)']),
    ...(s3 ? [] : ['an S3 server (radosgw ceph-mon ceph-mgr ceph-osd ceph-common, as root)']),
    ...(faketime ? [] : ['faketime']),
  ];
  if (missing.length === 0) return;
  if (process.env.CI) throw new Error(`not installed: ${missing.join(', ')}; here nothing may be skipped`);
  say(`Not installed, so its tests are skipped: ${missing.join('; ')}`);
}

const say = (sentence: string) => process.stdout.write(`\n  ${sentence}\n`);

/** Runs a program until standard input ends, as it does when our process ends for any reason. */
const stopsWithStdin = '"$@" </dev/null & read -r _; kill -QUIT $!; wait $!';

/**
 * The PostgreSQL of the npm package, without durability, because test data is temporary.
 * `environment`: additional variables.
 */
export async function startPostgres(
  directory: string,
  stops: Stops,
  environment: Record<string, string> = {},
): Promise<string> {
  const cluster = await openCluster(join(directory, 'database'), createLog({ level: 'silent', pretty: false }));
  const port = await freePort();
  const settings = ['listen_addresses=127.0.0.1', 'unix_socket_directories=', 'max_connections=200'];
  const unsafe = ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off'];
  const args = ['-D', cluster.path, '-p', String(port), ...[...settings, ...unsafe].flatMap((one) => ['-c', one])];
  const child = spawn('/bin/sh', ['-c', stopsWithStdin, 'sh', join(cluster.bin, 'postgres'), ...args], {
    ...cluster.account,
    cwd: cluster.data,
    env: { ...minimalEnvironment(), ...environment },
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  stops.push(async () => {
    const exit = once(child, 'exit');
    child.stdin.end();
    await exit;
  });
  const url = `postgres://postgres:${cluster.password}@127.0.0.1:${port}/postgres`;
  await until('PostgreSQL to answer', () =>
    ask(url, 'SELECT').then(
      () => true,
      () => child.exitCode !== null,
    ),
  );
  return url;
}

/** A database with the schema of the mirror and of its queues, which `newDatabase` copies. */
async function makeTemplate(postgres: string): Promise<string> {
  const name = 'mirror_template';
  await ask(postgres, `CREATE DATABASE ${name}`);
  const url = new URL(postgres);
  url.pathname = `/${name}`;
  const log = createLog({ level: 'silent', pretty: false });
  const store = await openStore({ url: url.href, log });
  const queues = new Queues({ databaseUrl: url.href, installation: 'template', log, redisUrl: undefined });
  await queues.ready();
  await queues.close();
  await store.close();
  return name;
}

async function findFaketime(): Promise<string | undefined> {
  const [path] = await Array.fromAsync(glob('/usr/lib/*/faketime/libfaketimeMT.so.1'));
  return path;
}

export async function startRedis(directory: string, stops: Stops): Promise<string | undefined> {
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
      '--databases',
      String(redisDatabases),
      '--dir',
      directory,
    ],
    { stdio: 'ignore' },
  );
  stops.push(() => ended(child));
  await answers(port);
  return `redis://127.0.0.1:${port}`;
}

/** A whole Ceph with its S3 gateway, in memory (see ceph-rgw.sh). */
async function startCeph(directory: string, stops: Stops): Promise<S3Server | undefined> {
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

/**
 * The Versity gateway, with a directory for its store (CONTRIBUTING.md says where to get it). It closes each connection after
 * its answer, unless configured to keep them open as S3 does: then it takes the end of a chunked body for the start of another
 * request (1.8.0), and the next request on that connection gets its 400.
 */
export async function startVersity(
  directory: string,
  stops: Stops,
  {
    keepAlive = false,
    versions = false,
    tls,
  }: { keepAlive?: boolean; versions?: boolean; tls?: Pick<Certificates, 'cert' | 'key'> | undefined } = {},
): Promise<S3Server | undefined> {
  if (!(await installed('versitygw'))) return undefined;
  const [accessKey, secretKey, region] = ['testaccesskey', 'testsecretkey0123456789', 'us-east-1'];
  const [objects, facts] = [join(directory, 'versity-objects'), join(directory, 'versity-facts')];
  const older = join(directory, 'versity-versions');
  await Promise.all([mkdir(objects), mkdir(facts), mkdir(older)]);
  // Not every file system has extended attributes, so metadata is in files (`--sidecar`). But with versioning, v1.8.0 then has a
  // defect: a removed object stays removed when it is put again.
  const metadata = versions ? ['--versioning-dir', older] : ['--sidecar', facts];
  const port = await freePort();
  const child = spawn(
    'versitygw',
    [
      ...['--port', `127.0.0.1:${port}`, '--region', region, '--quiet', ...(keepAlive ? ['--keep-alive'] : [])],
      ...(tls ? ['--cert', tls.cert, '--key', tls.key] : []),
      ...['posix', ...metadata, objects],
    ],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, ROOT_ACCESS_KEY: accessKey, ROOT_SECRET_KEY: secretKey },
    },
  );
  let said = '';
  child.stderr.on('data', (chunk) => {
    said += chunk;
  });
  stops.push(() => ended(child));
  await answers(
    port,
    () => `versitygw, which ${child.exitCode === null ? 'runs' : `ended (${child.exitCode})`}: ${said}`,
  );
  return {
    name: 'Versity S3 Gateway',
    endpoint: `http${tls ? 's' : ''}://127.0.0.1:${port}`,
    region,
    accessKey,
    secretKey,
  };
}

/** MinIO, for Object Lock (CONTRIBUTING.md says where to get it). */
export async function startMinio(directory: string, stops: Stops): Promise<S3Server | undefined> {
  if (!(await installed('minio'))) return undefined;
  const [accessKey, secretKey, region] = ['testaccesskey', 'testsecretkey0123456789', 'us-east-1'];
  const [port, console] = [await freePort(), await freePort()];
  const child = spawn(
    'minio',
    ['server', join(directory, 'minio'), '--address', `127.0.0.1:${port}`, '--console-address', `127.0.0.1:${console}`],
    {
      stdio: 'ignore',
      env: { ...process.env, MINIO_ROOT_USER: accessKey, MINIO_ROOT_PASSWORD: secretKey, MINIO_BROWSER: 'off' },
    },
  );
  stops.push(() => ended(child));
  const endpoint = `http://127.0.0.1:${port}`;
  await answers(port, () => 'minio');
  await until('MinIO to be ready', async () => (await fetch(`${endpoint}/minio/health/ready`)).ok);
  return { name: 'MinIO', endpoint, region, accessKey, secretKey };
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill();
  await exit;
}

async function answers(port: number, who = () => 'the server'): Promise<void> {
  for (let tries = 0; tries < 800; tries++) {
    const up = await new Promise<boolean>((resolve) => {
      const socket = createConnection(port, '127.0.0.1', () => resolve(true));
      socket.once('error', () => resolve(false)).once('connect', () => socket.destroy());
    });
    if (up) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`nothing answers on port ${port}: ${who()}`);
}
