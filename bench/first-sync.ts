import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { cpus, loadavg, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import type { Library } from '../src/library/index.ts';
import { createLog } from '../src/log.ts';
import { startEmbeddedPostgres } from '../src/store/embedded.ts';
import { newBrowser } from '../test/support/browser.ts';
import { adminOf } from '../test/support/library.ts';
import { freePort } from '../test/support/ports.ts';

/**
 * The first sync of a large library, and what it does to others. Library, mirror, PostgreSQL and Redis are processes of
 * their own, the bucket is a directory; transfers go on during the listing. While one connection is listed for the first
 * time, another one's new assets have to arrive. `node bench/first-sync.ts [ASSETS]` writes bench/results/first-sync.md.
 */
const ASSETS = Number(process.argv[2] ?? 1_000_000);
/** When the other connection gets a new asset, as parts of the listing. */
const UPLOADS = [0.1, 0.3, 0.5, 0.7, 0.9];

const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-bench-'));
const stack = new AsyncDisposableStack();
stack.defer(() => rm(directory, { recursive: true, force: true }));

const log = createLog({ level: 'silent', pretty: false });
const postgres = await startEmbeddedPostgres({ directory: join(directory, 'database'), log });
stack.defer(() => postgres.stop());
const db = new pg.Pool({ connectionString: postgres.url, max: 2 });
stack.defer(() => db.end());

const redisPort = await freePort();
const redisServer = spawn(
  'redis-server',
  ['--port', String(redisPort), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', directory],
  { stdio: 'ignore' },
);
stack.defer(() => ended(redisServer, 'SIGTERM'));
const redis = new Redis(redisPort, '127.0.0.1', { maxRetriesPerRequest: null });
stack.defer(() => redis.disconnect());

const port = await freePort();
const url = `http://127.0.0.1:${port}`;
const libraryProcess = fork(join(import.meta.dirname, 'library-server.ts'), [
  String(ASSETS),
  JSON.stringify({
    adminPort: 0,
    redirectUris: [`${url}/oauth/callback`],
    // Small files: this is about how many there are.
    content: { synthetic: ASSETS, sizes: [20_000, 200_000] },
  }),
]);
stack.defer(() => ended(libraryProcess, 'SIGTERM'));
const [library] = (await once(libraryProcess, 'message')) as [Library];
const admin = adminOf(library.adminUrl!);

const mirror = spawn(process.execPath, [join(import.meta.dirname, '../src/main.ts'), 'start'], {
  env: {
    PATH: process.env.PATH,
    DATABASE_URL: postgres.url,
    REDIS_URL: `redis://127.0.0.1:${redisPort}`,
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
    ...(process.argv[3] && { NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${process.argv[3]}` }),
  },
  stdio: ['ignore', 'pipe', 'inherit'],
});
stack.defer(() => ended(mirror, 'SIGTERM'));
for await (const text of createInterface(mirror.stdout!)) if (text.includes('"started"')) break;
mirror.stdout!.resume();

async function ended(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill(signal);
  await once(child, 'exit');
}

// biome-ignore lint/suspicious/noExplicitAny: the answers of the operator API, read as they come
async function operator(path: string, body?: object): Promise<any> {
  const response = await fetch(`${url}/api${path}`, {
    ...(body && { method: 'POST', body: JSON.stringify(body) }),
    headers: { authorization: 'Bearer the-operators-token', ...(body && { 'content-type': 'application/json' }) },
  });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** Connects a user of the library; returns the connection's id. */
async function connect(userId: string): Promise<string> {
  const browser = newBrowser();
  const consent = (await browser.get((await operator('/connect-links', {})).url)).headers.get('location');
  await browser.visit(`${consent}&login_hint=${userId}`);
  const { rows } = await db.query('SELECT id FROM connections WHERE user_id = $1', [userId]);
  return rows[0].id;
}

const megabytes = (pid: number, field: string) =>
  Number(new RegExp(`${field}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024;
const cpuSeconds = (pid: number) => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const number = (value: number) => Math.round(value).toLocaleString('en');

async function jobsOnQueue(): Promise<number> {
  const key = (list: string) => `{asset-mirror}:assets:${list}`;
  const [waiting, active, delayed] = await Promise.all([
    redis.llen(key('wait')),
    redis.llen(key('active')),
    redis.zcard(key('delayed')),
  ]);
  return waiting + active + delayed;
}

/** A new asset of the other connection, which syncs then: seconds until it is in the bucket. */
async function arrival(connectionId: string): Promise<number> {
  const started = performance.now();
  const { id } = await admin.addAsset({
    companyId: 'other',
    name: 'new.bin',
    mimeType: 'application/octet-stream',
    assetType: 'documents',
    thumbnail: false,
    content: { text: 'something new' },
  });
  await operator(`/connections/${connectionId}/resync`, { mode: 'incremental' });
  for (;;) {
    const { rows } = await db.query("SELECT 1 FROM assets WHERE id = $1 AND state = 'mirrored'", [id]);
    if (rows.length > 0) return (performance.now() - started) / 1000;
    await sleep(20);
  }
}

interface Sample {
  seconds: number;
  seen: number;
  rss: number;
}

try {
  await admin.addUser({ id: 'other', name: 'Other', email: 'other@example.com' });
  await admin.addCompany({ id: 'other', name: 'Other', userIds: ['other'] });
  const other = await connect('other');
  await sleep(2000);

  const before = megabytes(mirror.pid!, 'VmRSS');
  const cpuBefore = cpuSeconds(mirror.pid!);
  const started = performance.now();
  const first = await connect(library.users[0]!.id);
  const samples: Sample[] = [];
  const arrivals: { at: number; pending: number; seconds: Promise<number> }[] = [];
  const left = [...UPLOADS];
  let mostJobs = 0;
  for (;;) {
    const { rows } = await db.query(
      'SELECT seen, status, error, extract(epoch FROM finished_at - started_at)::float8 AS seconds FROM syncs WHERE connection_id = $1 ORDER BY requested_at LIMIT 1',
      [first],
    );
    const run = rows[0] ?? { seen: 0, status: 'waiting' };
    mostJobs = Math.max(mostJobs, await jobsOnQueue());
    const seconds = (performance.now() - started) / 1000;
    if (samples.length === 0 || seconds - samples.at(-1)!.seconds >= 1) {
      samples.push({ seconds, seen: run.seen, rss: megabytes(mirror.pid!, 'VmRSS') });
    }
    if (left.length > 0 && run.seen >= left[0]! * ASSETS) {
      left.shift();
      const pending = await db.query(
        "SELECT count(*)::int AS n FROM assets WHERE connection_id = $1 AND state <> 'mirrored'",
        [first],
      );
      arrivals.push({ at: run.seen, pending: pending.rows[0].n, seconds: arrival(other) });
    }
    if (run.status === 'done' || run.status === 'failed') {
      if (run.error) throw new Error(run.error);
      break;
    }
    await sleep(100);
  }
  const listed = (performance.now() - started) / 1000;
  const cpu = cpuSeconds(mirror.pid!) - cpuBefore;
  const facts = await db.query(
    "SELECT count(*)::int AS n, count(*) FILTER (WHERE state = 'mirrored')::int AS mirrored, pg_total_relation_size('assets')::float8 AS bytes, pg_relation_size('assets')::float8 AS heap FROM assets",
  );
  const { n, mirrored, bytes, heap } = facts.rows[0];
  const times = await Promise.all(arrivals.map(({ seconds }) => seconds));
  const quarters = [0, 1, 2, 3].map((q) => {
    const from = samples.filter(({ seen }) => seen >= (q * ASSETS) / 4 && seen <= ((q + 1) * ASSETS) / 4);
    const span = from.at(-1)!.seconds - from[0]!.seconds;
    return {
      rss: Math.max(...from.map(({ rss }) => rss)),
      perSecond: (from.at(-1)!.seen - from[0]!.seen) / Math.max(span, 0.001),
    };
  });
  const table: [string, string][] = [
    ['Listed and recorded', `${number(n - 1)} assets in ${number(listed)} s: ${number(n / listed)} a second`],
    ['… of it in each quarter, assets a second', quarters.map(({ perSecond }) => number(perSecond)).join(', ')],
    ['Mirrored meanwhile, the first connection’s', number(mirrored)],
    [
      'Memory of the mirror (RSS), MiB',
      `${number(before)} before; most in each quarter ${quarters.map(({ rss }) => number(rss)).join(', ')}`,
    ],
    [
      'Processor time of the mirror',
      `${number(cpu)} s, ${((cpu / n) * 1e6).toFixed(0)} µs an asset, transfers included`,
    ],
    ['Database', `${number(bytes / n)} bytes an asset (${number(heap / n)} without indexes)`],
    ['Most jobs of assets on the queue at once', String(mostJobs)],
    ...arrivals.map(({ at, pending }, i): [string, string] => [
      `Another connection’s new asset, after ${number(at)} were listed`,
      `in the bucket ${times[i]!.toFixed(1)} s after its upload, before ${number(pending)} of the first`,
    ]),
  ];
  for (const [what, measured] of table) console.log(`${what.padEnd(70)} ${measured}`);
  const machine = `${cpus().length} × ${cpus()[0]!.model}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, Node ${process.version}, ${new Date().toISOString().slice(0, 10)}`;
  mkdirSync(join(import.meta.dirname, 'results'), { recursive: true });
  writeFileSync(
    join(import.meta.dirname, 'results/first-sync.md'),
    `# A first sync

A synthetic library of ${number(ASSETS)} assets is connected and listed for the first time, 100 to a page, while its files are
transferred. Library, mirror, PostgreSQL and Redis share one machine (${machine};
its load at the end was ${loadavg()[0]!.toFixed(1)}, the work of others included), the bucket is a directory. The other
connection is told to sync when it has a new asset; otherwise it would take up to SYNC_INTERVAL longer. Made by \`npm run bench:first-sync\`.

| what | measured |
| --- | --- |
${table.map(([what, measured]) => `| ${what} | ${measured} |`).join('\n')}
`,
  );
} finally {
  await stack.disposeAsync();
}
process.exit();
