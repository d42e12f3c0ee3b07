import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, statfs } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { Redis } from 'ioredis';
import pg from 'pg';
import { createLog } from '../../src/floor/log.ts';
import { startEmbeddedPostgres } from '../../src/store/embedded/embedded.ts';
import { newBrowser } from '../support/browser.ts';
import { freePort } from '../support/ports.ts';
import { createContent } from './content.ts';
import { openLibrary } from './library.ts';
import { companies, type Options, projects, users } from './plan.ts';
import { createRandom } from './prng.ts';
import { Program } from './program.ts';
import { startProxy, type Trouble } from './proxy.ts';

const run = promisify(execFile);
const main = join(import.meta.dirname, '../../src/main.ts');

const adminToken = 'the-token-of-the-operators';
export const clientSecret = 'svcs_of_the_fault_suite';
/** A tmpfs takes memory only for the bytes in use. */
const diskBytes = 2 ** 30;

export type World = Awaited<ReturnType<typeof openWorld>>;

/** Everything as processes of their own, in one directory. With a directory as the store, that is a disk of its own. */
export async function openWorld(options: Options & { directory: string; hasDisk: boolean }) {
  const { directory } = options;
  await using opening = new AsyncDisposableStack();
  const programs: Record<string, Program> = {};
  const program = (one: Omit<ConstructorParameters<typeof Program>[0], 'log'>) => {
    const made = new Program({ ...one, log: join(directory, 'logs', `${one.name}.log`) });
    programs[one.name] = made;
    opening.defer(() => made.end('SIGKILL'));
    return made;
  };
  await mkdir(join(directory, 'logs'));

  const silent = createLog({ level: 'silent', pretty: false });
  const [records, libraryRecords] = await Promise.all(
    ['records', 'library'].map((name) =>
      startEmbeddedPostgres({ directory: join(directory, `${name}-db`), log: silent }),
    ),
  );
  for (const database of [records!, libraryRecords!]) opening.defer(() => database.stop());

  const redisPort = await freePort();
  await mkdir(join(directory, 'redis'));
  await program({
    name: 'redis',
    command: [
      'redis-server',
      ...['--port', String(redisPort), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'yes'],
      ...['--maxmemory-policy', 'noeviction', '--dir', join(directory, 'redis')],
    ],
    isReady: () => answers(redisPort),
  }).start();

  const random = createRandom(`${options.seed} proxies`).next;
  const libraryPort = await freePort();
  const libraryProxy = await startProxy({ port: await freePort(), target: libraryPort, random });
  opening.defer(() => libraryProxy.close());
  const webPort = await freePort();
  const publicUrl = `http://127.0.0.1:${webPort}`;
  const content = createContent();
  const adminPort = await freePort();
  const library = openLibrary({
    adminUrl: `http://127.0.0.1:${adminPort}`,
    proxy: libraryProxy,
    content,
    program: program({
      name: 'library',
      command: [
        ...[process.execPath, main, 'library', '--json', '--auto-consent', '--synthetic', '0'],
        ...['--port', String(libraryPort), '--admin-port', String(adminPort), '--public-url', libraryProxy.url],
        ...['--client-id', 'the-fault-suite', '--client-secret', clientSecret],
        ...['--redirect-uri', `${publicUrl}/oauth/callback`],
      ],
      env: { LIBRARY_DATABASE_URL: libraryRecords!.url },
      isReady: (output) => output.includes('"adminUrl"'),
    }),
  });
  await library.start();
  await library.admin(async (admin) => {
    for (const { id } of users) await admin.addUser({ id, name: id, email: `${id}@example.com` });
    for (const id of companies) {
      const userIds = users.filter((user) => user.companies.includes(id)).map((user) => user.id);
      await admin.addCompany({ id, name: `Company ${id}`, userIds });
    }
    for (const project of projects) await admin.addProject(project);
  });

  const store = options.store === 's3' ? await openS3() : await openDisk();

  async function openS3() {
    const [port, accessKey, secretKey] = [await freePort(), 'testaccesskey', randomBytes(16).toString('hex')];
    const [objects, facts] = [join(directory, 'objects'), join(directory, 'facts')];
    await Promise.all([mkdir(objects), mkdir(facts)]);
    await program({
      name: 's3',
      command: [
        'versitygw',
        '--port',
        `127.0.0.1:${port}`,
        '--region',
        'us-east-1',
        '--quiet',
        'posix',
        '--sidecar',
        facts,
        objects,
      ],
      env: { ROOT_ACCESS_KEY: accessKey, ROOT_SECRET_KEY: secretKey },
      isReady: () => answers(port),
    }).start();
    const proxy = await startProxy({ port: await freePort(), target: port, random });
    opening.defer(() => proxy.close());
    const client = new S3Client({
      endpoint: `http://127.0.0.1:${port}`,
      region: 'us-east-1',
      forcePathStyle: true,
      credentials: { accessKeyId: accessKey, secretAccessKey: secretKey },
      // The bytes are compared with the expected ones. An object that is being replaced has two checksums.
      responseChecksumValidation: 'WHEN_REQUIRED',
    });
    opening.defer(() => client.destroy());
    await client.send(new CreateBucketCommand({ Bucket: 'mirror' }));
    return {
      proxy,
      client,
      environment: {
        STORAGE_URL: 's3://mirror/copy',
        S3_ENDPOINT: proxy.url,
        S3_REGION: 'us-east-1',
        S3_FORCE_PATH_STYLE: 'true',
        AWS_ACCESS_KEY_ID: accessKey,
        AWS_SECRET_ACCESS_KEY: secretKey,
      } as Record<string, string>,
    };
  }

  async function openDisk() {
    const path = join(directory, 'disk');
    await mkdir(path);
    if (options.hasDisk) {
      await run('mount', ['-t', 'tmpfs', '-o', `size=${diskBytes}`, 'none', path]);
      opening.defer(async () => void (await run('umount', ['-l', path])));
    }
    return { proxy: undefined, client: undefined, environment: { STORAGE_URL: `file://${path}/mirror` } };
  }

  const environment = {
    ...store.environment,
    DATABASE_URL: records!.url,
    REDIS_URL: `redis://127.0.0.1:${redisPort}`,
    DATA_DIR: directory,
    PUBLIC_URL: publicUrl,
    PORT: String(webPort),
    ENCRYPTION_KEYS: randomBytes(32).toString('base64'),
    ADMIN_TOKEN: adminToken,
    LIBRARY_API_URL: libraryProxy.url,
    LIBRARY_APP_URL: libraryProxy.url,
    LIBRARY_CLIENT_ID: 'the-fault-suite',
    LIBRARY_CLIENT_SECRET: clientSecret,
    SYNC_INTERVAL: '5s',
    SCRUB_CYCLE: '2m',
    PROCESSING_POLL: '1s',
    TRANSCRIPT_DELAY: '0s',
    TRANSFER_STALL_TIMEOUT: '2s',
    SHUTDOWN_GRACE: '5s',
    CONNECTION_CONCURRENCY: '6',
    // So that large files take long enough to meet faults.
    BANDWIDTH_LIMIT: '24MiB/s',
    LOG_LEVEL: 'debug',
    LOG_PRETTY: 'false',
  };
  for (const [name, role] of [
    ['web', 'web'],
    ['worker-1', 'worker'],
    ['worker-2', 'worker'],
  ] as const) {
    await program({
      name,
      command: [process.execPath, main, 'start', '--role', role],
      env: environment,
      isReady: (output) => output.includes('"started"'),
    }).start();
  }

  async function api(method: string, path: string, body?: unknown) {
    const response = await fetch(`${publicUrl}/api${path}`, {
      method,
      headers: { authorization: `Bearer ${adminToken}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(20_000),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    // biome-ignore lint/suspicious/noExplicitAny: an answer, read as it comes
    return (await response.json()) as any;
  }

  /** Rows of the database, over a separate connection. */
  async function query<Row extends object>(sql: string, values: unknown[] = []): Promise<Row[]> {
    const client = new pg.Client({
      connectionString: records!.url,
      connectionTimeoutMillis: 5000,
      query_timeout: 20_000,
    });
    client.on('error', () => {});
    try {
      await client.connect();
      return (await client.query(sql, values)).rows as Row[];
    } finally {
      await client.end().catch(() => {});
    }
  }

  const postmaster = () => readFile(join(directory, 'records-db/postgres/postmaster.pid'), 'utf8');
  let endedPid: number | undefined;

  const stack = opening.move();
  return {
    options,
    directory,
    programs,
    content,
    library,
    libraryProxy,
    s3Proxy: store.proxy,
    bucket: store.client,
    disk: join(directory, 'disk/mirror'),
    api,
    query,
    /** Grants that the user revoked, or that a fault revoked. */
    endedByUs: [] as { user: string; at: number }[],

    /** Goes through the connect flow as a user, for as long as it takes. */
    async connect(user: string): Promise<void> {
      const until = Date.now() + 120_000;
      for (;;) {
        try {
          const { url } = await api('POST', '/connect-links', {});
          const browser = newBrowser();
          const consent = (await browser.get(url)).headers.get('location');
          const page = await browser.visit(`${consent}&login_hint=${user}`);
          if (page.status !== 200) throw new Error(`connecting ${user}: ${page.status}`);
          return;
        } catch (error) {
          if (Date.now() > until) throw error;
          await sleep(300);
        }
      }
    },

    s3Trouble: (trouble: Trouble) => store.proxy!.trouble(trouble),
    async killS3() {
      await programs.s3!.end('SIGKILL');
      return () => programs.s3!.start();
    },

    /** Fills the disk. */
    async fillDisk() {
      const size = (bytes: number) => run('mount', ['-o', `remount,size=${bytes}`, join(directory, 'disk')]);
      for (let tries = 0; ; tries++) {
        const { blocks, bfree, bsize } = await statfs(join(directory, 'disk'));
        // Another process may be writing.
        const done = await size((blocks - bfree) * bsize + 65_536).catch((error) => {
          if (tries === 20) throw error;
        });
        if (done) return () => size(diskBytes);
      }
    },

    async flushRedis(): Promise<void> {
      const redis = new Redis(redisPort, { lazyConnect: true, retryStrategy: null });
      redis.on('error', () => {});
      try {
        await redis.connect();
        await redis.flushall();
      } finally {
        redis.disconnect();
      }
    },

    async endPostgres(signal: NodeJS.Signals): Promise<void> {
      endedPid = Number((await postmaster()).split('\n')[0]);
      process.kill(endedPid, signal);
    },
    async postgresIsBack(): Promise<void> {
      const until = Date.now() + 120_000;
      for (;;) {
        const pid = Number((await postmaster().catch(() => '')).split('\n')[0]);
        const up =
          pid &&
          pid !== endedPid &&
          (await query('SELECT 1').then(
            () => true,
            () => false,
          ));
        if (up) return;
        if (Date.now() > until) throw new Error('PostgreSQL does not come back');
        await sleep(100);
      }
    },

    close: () => stack.disposeAsync(),
  };
}

async function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection(port, '127.0.0.1', () => resolve(true));
    socket.once('error', () => resolve(false)).once('connect', () => socket.destroy());
  });
}
