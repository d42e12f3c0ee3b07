import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { Redis } from 'ioredis';
import pg from 'pg';
import { createLog } from '../src/floor/log.ts';
import type { Library, LibraryOptions } from '../src/library/index.ts';
import { startEmbeddedPostgres } from '../src/store/embedded/embedded.ts';
import { type Certificates, newCertificates } from '../test/support/certificates.ts';
import { freePort } from '../test/support/ports.ts';
import { type S3Server, startRedis as startRedisServer, startVersity } from '../test/support/services.ts';
import { newBucket } from './buckets.ts';
import type { Counted, NullSource } from './null-source.ts';
import { childNamed, cpuOfAll, cpuSeconds, ended, parentOf, startProgram } from './proc.ts';
import type { Relay } from './relay.ts';

export interface ServerOptions {
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

type Network = Omit<Relay, 'to' | 'port'>;

export type Servers = Awaited<ReturnType<typeof startServers>>;

/** Starts the servers of a benchmark; `stack` ends them. `port` and `url` are for the mirror, which is not started. */
export async function startServers(stack: AsyncDisposableStack, options: ServerOptions) {
  const directory = options.directory ?? (await mkdtemp(join(tmpdir(), 'asset-mirror-bench-')));
  if (!options.directory) stack.defer(() => rm(directory, { recursive: true, force: true }));
  const postgres = await startPostgres(stack, directory, options.statements);
  const redis = options.redis ? await startRedis(stack, directory) : undefined;
  const certificates = options.tls ? await trustNewCertificates(stack) : undefined;
  const s3 = await startS3(stack, directory, options, certificates);
  const s3Endpoint = options.networks && s3 ? await startRelay(stack, s3.endpoint, options.networks.s3) : s3?.endpoint;
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const source = await startSource(stack, options, url, certificates);
  return { directory, postgres, redis, certificates, s3, s3Endpoint, port, url, source };
}

/** The embedded PostgreSQL and a pool for it. `pid`: the process whose children are all others of PostgreSQL. */
async function startPostgres(stack: AsyncDisposableStack, directory: string, statements = false) {
  const database = { directory: join(directory, 'database'), log: createLog({ level: 'silent', pretty: false }) };
  let postgres = await startEmbeddedPostgres(database);
  stack.defer(() => postgres.stop());
  if (statements) {
    // pg_stat_statements reserves its memory when the server starts.
    await query(postgres.url, "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'");
    await postgres.stop();
    postgres = await startEmbeddedPostgres(database);
    await query(postgres.url, 'CREATE EXTENSION IF NOT EXISTS pg_stat_statements');
  }
  const db = new pg.Pool({ connectionString: postgres.url, max: 2 });
  db.on('error', () => {});
  stack.defer(() => db.end());
  const { rows } = await db.query("SELECT pg_backend_pid() AS pid, current_setting('server_version') AS version");
  const version = `PostgreSQL ${String(rows[0].version).split(' ')[0]}`;
  return { url: postgres.url, db, pid: parentOf(rows[0].pid), version };
}

async function query(url: string, statement: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await client.query(statement);
  await client.end();
}

async function startRedis(stack: AsyncDisposableStack, directory: string) {
  const url = await startRedisServer(directory, stopsOf(stack));
  if (!url) throw new Error('no redis-server here');
  const client = new Redis(url, { maxRetriesPerRequest: null });
  stack.defer(() => client.disconnect());
  return { url, client };
}

/** The list to which the servers of the tests add how they stop. */
function stopsOf(stack: AsyncDisposableStack): (() => Promise<unknown>)[] {
  const stops: (() => Promise<unknown>)[] = [];
  stack.defer(async () => {
    for (const stop of stops) await stop();
  });
  return stops;
}

/** Certificates of a new authority, which this process trusts from now on. */
async function trustNewCertificates(stack: AsyncDisposableStack): Promise<Certificates> {
  const certificates = await newCertificates();
  stack.defer(certificates.clear);
  setDefaultCACertificates([...getCACertificates(), readFileSync(certificates.ca, 'utf8')]);
  return certificates;
}

async function startS3(
  stack: AsyncDisposableStack,
  directory: string,
  { s3, source, copiesOf }: ServerOptions,
  tls: Certificates | undefined,
): Promise<S3Server | undefined> {
  if (!s3) return undefined;
  if (s3 === 'null') {
    const copies = copiesOf && source ? [source.files, source.bytes, copiesOf].map(String) : [];
    const { child, said } = await startProgram<string>('null-s3.ts', copies);
    stack.defer(() => ended(child));
    return { name: 'null', endpoint: said, region: 'us-east-1', accessKey: 'key', secretKey: 'secret' };
  }
  const gateway = await startVersity(directory, stopsOf(stack), { keepAlive: true, tls });
  if (!gateway) throw new Error('no versitygw here');
  await newBucket(gateway, 'mirror');
  return gateway;
}

/** Puts a slow network in front of `endpoint`. Returns the address to use instead. */
async function startRelay(
  stack: AsyncDisposableStack,
  endpoint: string,
  network: Network,
  listen = 0,
): Promise<string> {
  const at = new URL(endpoint);
  const relay: Relay = { ...network, to: Number(at.port), port: listen };
  const { child, said } = await startProgram<number>('relay.ts', [JSON.stringify(relay)]);
  stack.defer(() => ended(child));
  at.port = String(said);
  return at.origin;
}

/** The library, or the null source with its address. Neither, if the benchmark needs none. */
async function startSource(
  stack: AsyncDisposableStack,
  { library, source, networks }: ServerOptions,
  mirrorUrl: string,
  tls: Certificates | undefined,
): Promise<{ child?: ChildProcess; library?: Library; origin?: string }> {
  if (library) {
    const settings = { adminPort: 0, redirectUris: [`${mirrorUrl}/oauth/callback`], ...library };
    const { child, said } = await startProgram<Library>('library-server.ts', ['0', JSON.stringify(settings)]);
    stack.defer(() => ended(child));
    return { child, library: said };
  }
  if (!source) return {};
  const front = networks && (await freePort());
  const shown = front && { origin: `http${tls ? 's' : ''}://127.0.0.1:${front}` };
  const { child, said } = await startProgram<string>('null-source.ts', [JSON.stringify({ ...source, ...shown, tls })]);
  stack.defer(() => ended(child));
  return { child, origin: front ? await startRelay(stack, said, networks.source, front) : said };
}

/** The API requests to the null source so far. */
export async function requestsTo(source: ChildProcess): Promise<Counted> {
  source.send('requests');
  const [counted] = (await once(source, 'message')) as [Counted];
  return counted;
}

/** Processor time of the servers so far, in seconds. */
export function cpuOfServers({ source, s3, postgres, redis }: Servers) {
  return {
    source: source.child ? cpuSeconds(source.child.pid!) : 0,
    store: s3 && s3.name !== 'null' ? cpuSeconds(childNamed('versitygw')) : 0,
    postgres: cpuOfAll(postgres.pid),
    redis: redis ? cpuSeconds(childNamed('redis-server')) : 0,
  };
}
