import { setTimeout as sleep } from 'node:timers/promises';
import { ground, number, table, write } from './page.ts';
import { cpuSeconds, mebibytes } from './proc.ts';
import { newStage } from './stage.ts';

/**
 * Many connections on one worker, each with a small library and no news, at an interval of five minutes: whether their syncs
 * are on time, and the resources for that; 100,000 at one of half an hour. `node bench/many-connections.ts [SECONDS] [CONNECTIONS…]`; SECONDS is how long is measured.
 */
const seconds = Number(process.argv[2] ?? 100);
const sizes = process.argv.length > 3 ? process.argv.slice(3).map(Number) : [100, 1000, 10_000, 100_000];
/** How often each is synced, in minutes: the most of them at an interval that one worker can keep. */
const every = (connections: number) => (connections < 100_000 ? 5 : 30);
const files = 10;

interface Found {
  connections: number;
  /** Syncs that started in the measured time, and syncs that were due. */
  syncs: number;
  due: number;
  /** The delay of a sync in ms. */
  p50: number;
  p99: number;
  /** Share of one processor. */
  cpu: { mirror: number; postgres: number; redis: number };
  /** MiB. */
  rss: number;
  redis: number;
  postgres: number;
  database: number;
}
let postgresVersion = '';

async function measure(connections: number): Promise<Found> {
  const newest = Date.now() - 86_400_000;
  const intervalMs = every(connections) * 60_000;
  await using stage = await newStage({ source: { files, bytes: 1000, newest, stepMs: 86_400_000 }, redis: true });
  postgresVersion = stage.postgresVersion;
  const { db } = stage;
  const redis = stage.redis!;
  await stage.migrate();
  await stage.addConnections(1, connections, newest);
  for (let from = 1; from <= connections; from += 20_000) {
    await stage.addMirrored(from, Math.min(connections, from + 19_999));
  }
  const mirror = await stage.mirror('worker', { SYNC_INTERVAL: `${intervalMs}ms` });
  // Until the day's inventory is written, and the work due meanwhile is done.
  const written = async () => (await db.query('SELECT count(written_at)::int AS n FROM inventories')).rows[0].n > 0;
  for (let waited = 0; !(await written()); waited++) {
    if (waited === 1200) throw new Error('the inventory of the day is not written');
    await sleep(500);
  }
  await sleep(15_000);

  const clock = async () => (await db.query('SELECT now()')).rows[0].now as Date;
  const [from, cpu, servers] = [await clock(), cpuSeconds(mirror.pid), stage.serversCpu()];
  await sleep(seconds * 1000);
  const [to, used, serversUsed] = [await clock(), cpuSeconds(mirror.pid), stage.serversCpu()];
  // Each connection has its own moment in the interval (src/store/syncs/schedule.ts).
  const turn = (at: string, id: string) =>
    `(extract(epoch FROM ${at}) * 1000 - abs(hashtext(${id})::numeric)) / ${intervalMs}`;
  const { rows } = await db.query(
    `SELECT (mod(${turn('started_at', 'connection_id')}, 1) * ${intervalMs})::float8 AS late FROM syncs
     WHERE mode = 'incremental' AND started_at >= $1 AND started_at < $2 ORDER BY late`,
    [from, to],
  );
  const { rows: dues } = await db.query(
    `SELECT sum(floor(${turn('$2::timestamptz', 'id')}) - floor(${turn('$1::timestamptz', 'id')}))::int AS due FROM connections`,
    [from, to],
  );
  const late = rows.map((row) => row.late as number);
  const at = (part: number) => late[Math.min(late.length - 1, Math.floor(part * late.length))] ?? Number.NaN;
  const span = (to.getTime() - from.getTime()) / 1000;
  const [{ bytes }] = (await db.query('SELECT pg_database_size(current_database())::float8 AS bytes')).rows;
  return {
    connections,
    syncs: late.length,
    due: dues[0].due,
    p50: at(0.5),
    p99: at(0.99),
    cpu: {
      mirror: (used - cpu) / span,
      postgres: (serversUsed.postgres - servers.postgres) / span,
      redis: (serversUsed.redis - servers.redis) / span,
    },
    rss: mebibytes(mirror.pid, 'VmHWM'),
    redis: Number(/used_memory:(\d+)/.exec(await redis.info('memory'))![1]) / 2 ** 20,
    postgres: stage.postgresMemory(),
    database: bytes / 2 ** 20,
  };
}

const found: Found[] = [];
for (const size of sizes) {
  found.push(await measure(size));
  console.log(found.at(-1));
}
const percent = (share: number) => `${number(share * 100, 1)} %`;
write('many-connections', {
  title: 'Many connections',
  charts: [
    {
      kind: 'curves',
      title: 'Lateness of syncs, with one worker',
      x: 'connections, each synced every 5 minutes, 100,000 every 30',
      y: 'ms late',
      series: [
        { name: 'p99', points: found.map(({ connections, p99 }) => [connections, Math.max(1, p99)]) },
        { name: 'median', points: found.map(({ connections, p50 }) => [connections, Math.max(1, p50)]) },
      ],
    },
    {
      kind: 'curves',
      title: 'Processor time and memory',
      x: 'connections, each synced every 5 minutes, 100,000 every 30',
      y: 'processor of the worker, % of one core; memory of the servers, MiB',
      series: [
        {
          name: 'CPU of the worker, %',
          points: found.map(({ connections, cpu }) => [connections, Math.max(0.1, cpu.mirror * 100)]),
        },
        { name: 'PostgreSQL, MiB', points: found.map(({ connections, postgres }) => [connections, postgres]) },
        { name: 'Redis, MiB', points: found.map(({ connections, redis }) => [connections, redis]) },
      ],
    },
  ],
  text: `
Connections with ${files} assets each, in which nothing is new. One worker syncs each connection every 5 minutes (100,000: every 30), with
PostgreSQL and Redis. The measurement takes ${seconds} s. It begins when the inventory of the day is written. The
tokens are written into the records, and a simple server answers instead of the library.

Each connection has its own time in the interval. A sync that begins after that time is late. If far fewer syncs begin than are due,
one worker is too few. (A few that are due at the very end begin after the measurement.) A sync that is late by more than the
interval is not seen. The processor time includes the work that a worker always does.

${table(
  [
    'connections',
    'syncs, of the due ones',
    'p50 ms late',
    'p99 ms',
    'CPU of the worker',
    'of PostgreSQL',
    'of Redis',
    'CPU ms a sync',
  ],
  found.map(({ connections, syncs, due, p50, p99, cpu }) => [
    number(connections),
    `${number(syncs)} of ${number(due)}`,
    number(p50),
    number(p99),
    percent(cpu.mirror),
    percent(cpu.postgres),
    percent(cpu.redis),
    number((cpu.mirror * seconds * 1000) / syncs, 1),
  ]),
)}

${table(
  ['connections', 'worker at its peak (RSS), MiB', 'Redis, MiB', 'PostgreSQL (PSS), MiB', 'database on disk, MiB'],
  found.map(({ connections, rss, redis, postgres, database }) => [
    number(connections),
    number(rss),
    number(redis, 1),
    number(postgres),
    number(database),
  ]),
)}
`,
  ground: await ground(['redis'], [postgresVersion]),
});
