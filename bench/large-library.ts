import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type Mirror, main } from './mirror.ts';
import { ground, number, table, write } from './page.ts';
import { cpuSeconds, mebibytes } from './proc.ts';
import { newStage } from './stage.ts';

/**
 * Measures work on a whole library, with many assets in one database: finding due assets, a full sync, a verification,
 * an inventory, a rebuild, and the answers of the operator API. `node bench/large-library.ts [ASSETS]`. Records are written by
 * SQL; the bucket lists their objects and keeps nothing.
 */
const ASSETS = Number(process.argv[2] ?? 10_000_000);
const connections = 10;
const each = Math.ceil(ASSETS / connections);
const due = Math.min(5000, Math.floor(each / 10));
/** A full sync and a rebuild run for this long; their rate does not change after that. */
const sampleSeconds = 180;
const requests = 40;

await using stage = await newStage({
  source: { files: each, bytes: 10_000, newest: Date.UTC(2026, 0, 1), stepMs: 1000 },
  redis: true,
  s3: 'null',
  copiesOf: connections,
});
const { db } = stage;

interface Phase {
  what: string;
  count: number;
  seconds: number;
  cpu: number;
  /** Of PostgreSQL. */
  databaseCpu: number;
  /** The most of the process, MiB. */
  rss: number;
}
const phases: Phase[] = [];

/** Measures one phase of a process; `work` returns how many assets it went through. */
async function measured(what: string, pid: number, work: () => Promise<number>): Promise<void> {
  const before = { cpu: cpuSeconds(pid), database: stage.serversCpu().postgres, at: performance.now() };
  let [rss, cpu] = [0, 0];
  const sampling = setInterval(() => {
    try {
      rss = Math.max(rss, mebibytes(pid, 'VmRSS'));
      cpu = cpuSeconds(pid) - before.cpu;
    } catch {
      // The process has ended.
    }
  }, 100);
  const count = await work();
  clearInterval(sampling);
  const seconds = (performance.now() - before.at) / 1000;
  phases.push({ what, count, seconds, cpu, databaseCpu: stage.serversCpu().postgres - before.database, rss });
  console.log(phases.at(-1));
}

await stage.migrate();
const began = performance.now();
await stage.addConnections(1, connections, Date.UTC(2026, 0, 1));
await stage.addMirrored(1, connections);
console.log(`${number(each * connections)} records written in ${number((performance.now() - began) / 1000)} s`);
// The heap limit that Node sets in a container of 512 MiB, the size of a worker in docs/operate/scaling.md.
const NODE_OPTIONS = `${stage.environment.NODE_OPTIONS} --max-old-space-size=256`;
const settings = { SYNC_INTERVAL: '30d', SCRUB_CYCLE: 'off', DRILL_INTERVAL: 'off', NODE_OPTIONS };
// Otherwise the daily inventory would be written beside the phases that are measured.
await db.query("INSERT INTO inventories (day, written_at) VALUES ((now() AT TIME ZONE 'UTC')::date, now())");
const mirror = await stage.mirror('all', settings);

await measured('due assets, found and mirrored again', mirror.pid, async () => {
  await db.query(
    `UPDATE assets SET state = 'pending', media = NULL, record_key = NULL, mirrored_at = NULL, bytes = NULL, next_at = now(),
       revision = revision + 1
     WHERE id = ANY (SELECT 'asset-3-' || i * ${Math.floor(each / due)} FROM generate_series(0, ${due - 1}) AS i)`,
  );
  await until(async () => (await db.query("SELECT FROM assets WHERE state <> 'mirrored' LIMIT 1")).rowCount === 0);
  return due;
});

await measured('a full sync that finds nothing new', mirror.pid, async () => {
  const { syncId } = await stage.operator('/connections/connection-1/resync', { mode: 'full' });
  const began = performance.now();
  const sync = async () => (await db.query('SELECT seen, status FROM syncs WHERE id = $1', [syncId])).rows[0];
  await until(async () => (await sync()).status === 'done' || performance.now() - began > sampleSeconds * 1000);
  return (await sync()).seen;
});

// The listing of the library is measured: without it, a verification compares the records and the bucket.
await stage.ended(mirror);
await db.query("UPDATE connections SET status = 'paused'");
const verifier = await stage.mirror('all', settings);
const { id: verification } = await stage.operator('/verify', { inventory: true });
const status = async () =>
  (
    await db.query("SELECT status, position->>'phase' AS phase, counts, error FROM verifications WHERE id = $1", [
      verification,
    ])
  ).rows[0];
await measured('a verification: all objects of the bucket', verifier.pid, async () => {
  await until(
    async () => ['inventory', 'end'].includes((await status()).phase) || (await status()).status === 'failed',
  );
  const { counts, error } = await status();
  if (error) throw new Error(error);
  if (counts.missing + counts.different > 0) {
    const { rows } = await db.query("SELECT * FROM verification_lines WHERE mark IN ('-', '*') LIMIT 3");
    throw new Error(`the bucket differs: ${JSON.stringify([counts, rows])}`);
  }
  return counts.assets;
});
await measured('the inventory', verifier.pid, async () => {
  await until(async () => (await status()).status === 'done');
  return each * connections;
});

const answers: { path: string; p50: number; p99: number }[] = [];
const one = 'asset-7-42';
for (const path of [
  '/status',
  '/connections',
  '/connections/connection-3',
  '/history?range=week',
  '/upcoming',
  '/syncs',
  '/events',
  '/verify',
  '/assets',
  '/assets?state=mirrored',
  '/assets?state=failed',
  '/assets?connectionId=connection-7',
  '/assets?companyId=company-7',
  '/assets?projectId=project-7',
  '/assets?type=documents',
  '/assets?type=videos',
  '/assets?q=file-42',
  '/assets?q=nothing',
  `/assets?q=${one}`,
  `/assets/${one}`,
]) {
  const times: number[] = [];
  // The first two only warm up.
  for (let run = -2; run < requests; run++) {
    const began = performance.now();
    await stage.operator(path);
    if (run >= 0) times.push(performance.now() - began);
    if (run >= 3 && performance.now() - began > 3000) break;
  }
  times.sort((a, b) => a - b);
  const at = (part: number) => times[Math.min(times.length - 1, Math.floor(part * times.length))]!;
  answers.push({ path, p50: at(0.5), p99: at(0.99) });
  console.log(answers.at(-1));
}
await stage.ended(verifier);

// From the same bucket into an empty database.
await db.query('CREATE DATABASE rebuilt');
const address = new URL(stage.environment.DATABASE_URL!);
address.pathname = '/rebuilt';
const rebuilding = spawn(process.execPath, [main, 'rebuild', '--json'], {
  env: { ...stage.environment, DATABASE_URL: address.href, NODE_OPTIONS },
  stdio: ['ignore', 'ignore', 'inherit'],
}) as Mirror;
await measured('a rebuild of the records from the bucket', rebuilding.pid, async () => {
  const ended = once(rebuilding, 'exit');
  await Promise.race([sleep(sampleSeconds * 1000, undefined, { ref: false }), ended]);
  rebuilding.kill('SIGINT');
  await ended;
  const rebuilt = new pg.Client(address.href);
  await rebuilt.connect();
  const { rows } = await rebuilt.query('SELECT count(*)::int AS n FROM assets');
  await rebuilt.end();
  return rows[0].n;
});

const { rows: sizes } = await db.query(
  `SELECT pg_total_relation_size('assets')::float8 AS assets, pg_relation_size('assets')::float8 AS heap,
     pg_database_size(current_database())::float8 AS database`,
);
const perAsset = (bytes: number) => number(bytes / (each * connections));
const slowest = answers.toSorted((a, b) => b.p99 - a.p99);
/** Hours of one core, PostgreSQL included, for all assets. */
const hours = ({ count, cpu, databaseCpu }: Phase) => ((cpu + databaseCpu) / count) * (ASSETS / 3600);
write('large-library', {
  title: 'A large library',
  charts: [
    {
      kind: 'bars',
      title: `${number(ASSETS)} assets in one database`,
      panels: [
        {
          title: 'Assets a second',
          rows: phases.map((phase) => ({
            label: phase.what,
            value: phase.count / phase.seconds,
            text: number(phase.count / phase.seconds),
            ours: true,
          })),
        },
        {
          title: 'Peak memory (RSS), MiB',
          rows: phases.map(({ what, rss }) => ({ label: what, value: rss, text: number(rss), ours: true })),
        },
      ],
    },
  ],
  text: `
${number(ASSETS)} mirrored assets of ${connections} connections in one database, with their objects in a bucket that only lists them. A full sync
and a rebuild run for ${sampleSeconds} s: each of their pages costs the same. The verification compares all records with all objects, and
lists no library; that is what the full sync does.

${table(
  [
    'what',
    'assets',
    'seconds',
    'assets/s',
    'CPU s of the mirror',
    'of PostgreSQL',
    'hours of one core for all, with PostgreSQL',
    'peak RSS, MiB',
  ],
  phases.map((phase) => [
    phase.what,
    number(phase.count),
    number(phase.seconds),
    number(phase.count / phase.seconds),
    number(phase.cpu),
    number(phase.databaseCpu),
    phase.count === due ? '' : number(hours(phase), 2),
    number(phase.rss),
  ]),
)}

PostgreSQL has ${perAsset(sizes[0].database)} bytes for each asset; of these, ${perAsset(sizes[0].heap)} are its row, and ${perAsset(sizes[0].assets - sizes[0].heap)} the indexes of its table.

The operator API, ${requests} requests each, one after another:

${table(
  ['request', 'p50 ms', 'p99 ms'],
  slowest.map(({ path, p50, p99 }) => [`\`GET /api${path}\``, number(p50, 1), number(p99, 1)]),
)}
`,
  ground: await ground(['redis'], [stage.postgresVersion]),
});

async function until(isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await sleep(200);
}
