import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { Redis } from 'ioredis';
import pg from 'pg';
import type { Library, LibraryOptions } from '../src/library/index.ts';
import { createLog } from '../src/log.ts';
import { prefixOf } from '../src/queue/backend.ts';
import { startEmbeddedPostgres } from '../src/store/embedded/embedded.ts';
import { newBrowser } from '../test/support/browser.ts';
import { newCertificates } from '../test/support/certificates.ts';
import { adminOf } from '../test/support/library.ts';
import { freePort } from '../test/support/ports.ts';
import { type S3Server, startRedis, startVersity } from '../test/support/services.ts';
import { newBucket } from './buckets.ts';
import { type Mirror, main } from './mirror.ts';
import type { Counted, NullSource } from './null-source.ts';
import { childNamed, childrenOf, cpuOfAll, cpuSeconds, ended, startProgram, statOf } from './proc.ts';
import { addConnections, addMirrored, encryptionKey, foldCounts, migrate } from './records.ts';
import type { Relay } from './relay.ts';

const log = createLog({ level: 'silent', pretty: false });

export interface StageOptions {
  /** The source: the library of this repository, a null source, or an address without a server. */
  library?: Partial<LibraryOptions>;
  source?: NullSource;
  /** Without it, queues are in PostgreSQL. */
  redis?: boolean;
  /** Versity's gateway, or one that keeps nothing (`null-s3.ts`). Without it, objects are in a directory. */
  s3?: 'versity' | 'null';
  /** The bucket that keeps nothing lists the copies of this number of companies. */
  copiesOf?: number;
  /** The null source and Versity's gateway speak HTTPS. */
  tls?: boolean;
  /** PostgreSQL counts statements. */
  statements?: boolean;
  /** Slow networks in front of the null source and of the S3 server. */
  networks?: { source: Network; s3: Network };
  /** The directory that keeps the records. */
  directory?: string | undefined;
}

export type Network = Omit<Relay, 'to' | 'port'>;

export type Stage = Awaited<ReturnType<typeof newStage>>;

/**
 * The servers of a benchmark: PostgreSQL and, on request, a library or a null source, Redis and an S3 server, each as a
 * process on this machine; and the mirrors that it starts. Everything ends when it is disposed.
 */
export async function newStage(options: StageOptions) {
  await using starting = new AsyncDisposableStack();
  const directory = options.directory ?? (await mkdtemp(join(tmpdir(), 'asset-mirror-bench-')));
  if (!options.directory) starting.defer(() => rm(directory, { recursive: true, force: true }));

  const database = { directory: join(directory, 'database'), log };
  let postgres = await startEmbeddedPostgres(database);
  starting.defer(() => postgres.stop());
  if (options.statements) {
    // pg_stat_statements reserves its memory when the server starts.
    await query(postgres.url, "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'");
    await postgres.stop();
    postgres = await startEmbeddedPostgres(database);
    await query(postgres.url, 'CREATE EXTENSION IF NOT EXISTS pg_stat_statements');
  }
  const db = new pg.Pool({ connectionString: postgres.url, max: 2 });
  db.on('error', () => {});
  starting.defer(() => db.end());
  const { rows: servers } = await db.query(
    "SELECT pg_backend_pid() AS pid, current_setting('server_version') AS version",
  );
  const postgresPid = Number(statOf(servers[0].pid)[1]);

  const stops: (() => Promise<unknown>)[] = [];
  starting.defer(async () => {
    for (const stop of stops) await stop();
  });
  const redisUrl = options.redis ? await startRedis(directory, stops) : undefined;
  if (options.redis && !redisUrl) throw new Error('no redis-server here');
  const redis = redisUrl ? new Redis(redisUrl, { maxRetriesPerRequest: null }) : undefined;
  starting.defer(() => redis?.disconnect());
  const certificates = options.tls ? await newCertificates() : undefined;
  if (certificates) {
    starting.defer(certificates.clear);
    setDefaultCACertificates([...getCACertificates(), readFileSync(certificates.ca, 'utf8')]);
  }
  let s3: S3Server | undefined;
  if (options.s3 === 'null') {
    const { files, bytes } = options.source ?? { files: 0, bytes: 0 };
    const copies = options.copiesOf ? [files, bytes, options.copiesOf].map(String) : [];
    const { child, said } = await startProgram<string>('null-s3.ts', copies);
    starting.defer(() => ended(child));
    s3 = { name: 'null', endpoint: said, region: 'us-east-1', accessKey: 'key', secretKey: 'secret' };
  } else if (options.s3) {
    s3 = await startVersity(directory, stops, { keepAlive: true, tls: certificates });
    if (!s3) throw new Error('no versitygw here');
    await newBucket(s3, 'mirror');
  }
  /** Puts a slow network in front of `endpoint`. Returns the address to use instead. */
  async function relayed(endpoint: string, network: Network, listen = 0): Promise<string> {
    const at = new URL(endpoint);
    const relay: Relay = { ...network, to: Number(at.port), port: listen };
    const { child, said } = await startProgram<number>('relay.ts', [JSON.stringify(relay)]);
    starting.defer(() => ended(child));
    at.port = String(said);
    return at.origin;
  }
  const s3Endpoint = options.networks && s3 ? await relayed(s3.endpoint, options.networks.s3) : s3?.endpoint;

  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  let library: Library | undefined;
  let origin: string | undefined;
  let sourceProcess: ChildProcess | undefined;
  if (options.library) {
    const settings = { adminPort: 0, redirectUris: [`${url}/oauth/callback`], ...options.library };
    const { child, said } = await startProgram<Library>('library-server.ts', ['0', JSON.stringify(settings)]);
    [library, sourceProcess] = [said, child];
  } else if (options.source) {
    const front = options.networks && (await freePort());
    const shown = front && { origin: `http${certificates ? 's' : ''}://127.0.0.1:${front}` };
    const { child, said } = await startProgram<string>('null-source.ts', [
      JSON.stringify({ ...options.source, ...shown, tls: certificates }),
    ]);
    sourceProcess = child;
    origin = front ? await relayed(said, options.networks!.source, front) : said;
  }
  if (sourceProcess) starting.defer(() => ended(sourceProcess));

  const nowhere = 'http://127.0.0.1:9';
  const environment: Record<string, string> = {
    PATH: process.env.PATH!,
    // NODE_OPTIONS and MALLOC_ARENA_MAX have the values of the image.
    NODE_OPTIONS: '--max-semi-space-size=4',
    MALLOC_ARENA_MAX: '2',
    DATABASE_URL: postgres.url,
    ...(certificates && { NODE_EXTRA_CA_CERTS: certificates.ca }),
    ...(redisUrl && { REDIS_URL: redisUrl }),
    ...(s3 && {
      STORAGE_URL: 's3://mirror/',
      S3_ENDPOINT: s3Endpoint!,
      S3_REGION: s3.region,
      S3_FORCE_PATH_STYLE: 'true',
      AWS_ACCESS_KEY_ID: s3.accessKey,
      AWS_SECRET_ACCESS_KEY: s3.secretKey,
      ...(options.s3 === 'null' && { S3_CHECKSUMS: 'crc32' }),
    }),
    DATA_DIR: directory,
    PORT: String(port),
    PUBLIC_URL: url,
    ADMIN_TOKEN: 'the-token-of-the-operators',
    ENCRYPTION_KEYS: encryptionKey.toString('base64'),
    LIBRARY_API_URL: library?.apiUrl ?? origin ?? nowhere,
    LIBRARY_APP_URL: library?.appUrl ?? origin ?? nowhere,
    LIBRARY_CLIENT_ID: library?.clientId ?? 'bench',
    LIBRARY_CLIENT_SECRET: library?.clientSecret ?? 'bench',
    SYNC_INTERVAL: '1h',
    SYNC_INTERVAL_ACTIVE: '30d',
    LOG_PRETTY: 'false',
  };

  // biome-ignore lint/suspicious/noExplicitAny: the answers of the operator API, read as they come
  async function operator(path: string, body?: object): Promise<any> {
    const response = await fetch(`${url}/api${path}`, {
      ...(body && { method: 'POST', body: JSON.stringify(body) }),
      headers: {
        authorization: 'Bearer the-token-of-the-operators',
        accept: 'application/json',
        ...(body && { 'content-type': 'application/json' }),
      },
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  const stack = starting.move();
  // An interrupted benchmark leaves nothing running, either.
  let ending: Promise<void> | undefined;
  const end = () => {
    ending ??= stack.disposeAsync();
    return ending;
  };
  const breakOff = () => void end().finally(() => process.exit(1));
  process.once('SIGINT', breakOff).once('SIGTERM', breakOff);
  stack.defer(() => void process.off('SIGINT', breakOff).off('SIGTERM', breakOff));
  return {
    url,
    directory,
    environment,
    db,
    redis,
    s3,
    /** The address of the null source. */
    origin,
    /** With `tls`: the file of the certificate authority of the null source and the S3 server. */
    ca: certificates?.ca,
    operator,
    ended,
    postgresVersion: `PostgreSQL ${String(servers[0].version).split(' ')[0]}`,
    /** The admin API of the library in this repository, if it is used. */
    get library(): Library {
      return library!;
    },
    get admin() {
      return adminOf(library!.adminUrl!);
    },

    /** Starts a mirror, and waits until it has. `profile` is a directory for V8's profile, written at its end. */
    async mirror(
      role: 'all' | 'web' | 'worker' = 'all',
      added: Record<string, string> = {},
      profile = process.env.PROFILE,
    ): Promise<Mirror> {
      const prof = profile ? ['--cpu-prof', `--cpu-prof-dir=${profile}`] : [];
      const child = spawn(process.execPath, [...prof, main, 'start', '--role', role], {
        env: { ...environment, ...added },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      stack.defer(() => ended(child));
      let started = false;
      for await (const text of createInterface(child.stdout)) {
        started = text.includes('"started"');
        if (started) break;
      }
      if (!started) throw new Error('the mirror did not start');
      child.stdout.resume();
      return child as Mirror;
    },

    /** Connects a user of the library; returns the connection's id. */
    async connect(userId = library!.users[0]!.id): Promise<string> {
      const browser = newBrowser();
      const consent = (await browser.get((await operator('/connect-links', {})).url)).headers.get('location');
      await browser.visit(`${consent}&login_hint=${userId}`);
      const { rows } = await db.query('SELECT id FROM connections WHERE user_id = $1', [userId]);
      return rows[0].id;
    },

    migrate: () => migrate(postgres.url),
    foldCounts: () => foldCounts(postgres.url),

    /** Connections of users `from` to `to` of the null source; up to `highWaterMark` everything is listed. */
    addConnections: (from: number, to: number, highWaterMark: number | null = null) =>
      addConnections(db, from, to, { highWaterMark, shared: options.source?.shared }),

    /** All assets of these users of the null source, as if they had been mirrored. */
    addMirrored: (from: number, to: number) => addMirrored({ url: postgres.url, db }, options.source!, from, to),

    /** The prefix of the mirror's keys in Redis, once one has started. */
    async queueKeys(): Promise<string> {
      const { rows } = await db.query("SELECT value FROM settings WHERE name = 'installation'");
      return prefixOf(rows[0].value);
    },

    /**
     * Resolves when this number of assets is mirrored, with the time by `performance.now()`.
     * @throws Error if one of them fails, or after five minutes without another one
     */
    async mirrored(count: number): Promise<number> {
      let [last, since] = [-1, performance.now()];
      for (;;) {
        const { rows } = await db.query(
          `SELECT coalesce(sum(assets) FILTER (WHERE state = 'mirrored'), 0)::int AS n,
             coalesce(sum(assets) FILTER (WHERE state = 'failed'), 0)::int AS failed
           FROM (SELECT state, assets FROM asset_counts UNION ALL SELECT state, assets FROM asset_count_changes) AS counted`,
        );
        const { n, failed } = rows[0];
        if (n >= count) return performance.now();
        if (failed > 0) {
          const { rows } = await db.query("SELECT min(reason::text) AS reason FROM assets WHERE state = 'failed'");
          throw new Error(`not mirrored: ${rows[0].reason}`);
        }
        if (n > last) [last, since] = [n, performance.now()];
        else if (performance.now() - since > 300_000)
          throw new Error(`${n} of ${count} assets mirrored, and no more come`);
        await sleep(50);
      }
    },

    /** The API requests to the null source so far. */
    async requests(): Promise<Counted> {
      sourceProcess!.send('requests');
      const [counted] = (await once(sourceProcess!, 'message')) as [Counted];
      return counted;
    },

    /** Processor time of the servers so far, in seconds. */
    serversCpu() {
      return {
        source: sourceProcess ? cpuSeconds(sourceProcess.pid!) : 0,
        store: options.s3 === 'versity' ? cpuSeconds(childNamed('versitygw')) : 0,
        postgres: cpuOfAll(postgresPid),
        redis: redisUrl ? cpuSeconds(childNamed('redis-server')) : 0,
      };
    },

    /** The memory of PostgreSQL's processes in MiB; shared memory counts once. */
    postgresMemory(): number {
      const all = [postgresPid, ...childrenOf(postgresPid)].map((pid) => {
        try {
          return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))![1]);
        } catch {
          return 0;
        }
      });
      return all.reduce((sum, pss) => sum + pss, 0) / 1024;
    },

    /** The counts so far: statements to PostgreSQL (with `statements`), commands to Redis, requests to the null source. */
    async talk(): Promise<{ statements: number; commands: number; requests: number }> {
      const { rows } = options.statements
        ? await db.query('SELECT sum(calls)::int AS n FROM pg_stat_statements')
        : { rows: [{ n: 0 }] };
      const commands = Number(/total_commands_processed:(\d+)/.exec((await redis?.info('stats')) ?? '')?.[1] ?? 0);
      const { requests } = origin ? await this.requests() : { requests: 0 };
      return { statements: rows[0].n, commands, requests };
    },

    [Symbol.asyncDispose]: end,
  };
}

async function query(url: string, statement: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await client.query(statement);
  await client.end();
}
