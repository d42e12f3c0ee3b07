import { availableParallelism } from 'node:os';
import { ground, number, table, write } from './page.ts';
import { cpuSeconds } from './proc.ts';
import { newStage } from './stage.ts';

/**
 * Small files by one worker and by several, on Redis, from a minimal source into a minimal store: this shows the limits
 * of the mirror itself. Then the same from a source that answers after 100 ms, with few transfers in each worker, so that the processors
 * are not the limit. `node bench/processes.ts [FILES] [BYTES] [WORKERS…]`.
 */
const files = Number(process.argv[2] ?? 4000);
const bytes = Number(process.argv[3] ?? 10_000);
const counts = process.argv.length > 4 ? process.argv.slice(4).map(Number) : [1, 2, 4, 8];
/** The files belong to this number of connections. One more connection comes before them, to compile the code. */
const connections = 4;

/** Where the files come from, and how many transfers each worker has. */
interface Setting {
  delayMs: number;
  transfers: number;
  /** How many files one measurement copies. */
  files: (workers: number) => number;
}
const near: Setting = { delayMs: 0, transfers: 16, files: () => files };
// So each measurement takes about as long.
const far: Setting = { delayMs: 100, transfers: 4, files: (workers) => (files / 8) * workers };

interface Found {
  workers: number;
  perSecond: number;
  /** CPU ms a file: of all workers, and of the servers. */
  workersCpu: number;
  servers: { source: number; postgres: number; redis: number };
  /** The processors in use, without those of the benchmark and of the null store. */
  busy: number;
}
let postgresVersion = '';

async function measure(workers: number, { delayMs, transfers, files }: Setting): Promise<Found> {
  const each = Math.ceil(files(workers) / connections);
  await using stage = await newStage({
    source: { files: each, bytes, newest: Date.now() - 86_400_000, stepMs: 1000 },
    redis: true,
    s3: 'null',
    ...(delayMs > 0 && { networks: { source: { delayMs }, s3: { delayMs: 0 } } }),
  });
  postgresVersion = stage.postgresVersion;
  await stage.migrate();
  const settings = { SYNC_INTERVAL: '30d', TRANSFER_CONCURRENCY: String(transfers), CONNECTION_CONCURRENCY: '64' };
  await stage.mirror('web', settings);
  const running = await Promise.all(Array.from({ length: workers }, () => stage.mirror('worker', settings)));
  const resync = (user: number) => stage.operator(`/connections/connection-${user}/resync`, { mode: 'incremental' });
  await stage.addConnections(1, 1);
  await resync(1);
  await stage.mirrored(each);

  await stage.addConnections(2, 1 + connections);
  const cpuOf = () => running.reduce((sum, { pid }) => sum + cpuSeconds(pid), 0);
  const [cpu, servers, began] = [cpuOf(), stage.serversCpu(), performance.now()];
  await Promise.all(Array.from({ length: connections }, (_, i) => resync(2 + i)));
  const seconds = ((await stage.mirrored(each * (1 + connections))) - began) / 1000;
  const [used, serversUsed] = [cpuOf() - cpu, stage.serversCpu()];
  const n = each * connections;
  const ms = (of: 'source' | 'postgres' | 'redis') => ((serversUsed[of] - servers[of]) / n) * 1000;
  const spent = { source: ms('source'), postgres: ms('postgres'), redis: ms('redis') };
  const all = (used / n) * 1000 + spent.source + spent.postgres + spent.redis;
  return {
    workers,
    perSecond: n / seconds,
    workersCpu: (used / n) * 1000,
    servers: spent,
    busy: (all * n) / 1000 / seconds,
  };
}

async function measureAll(setting: Setting): Promise<Found[]> {
  const found: Found[] = [];
  for (const workers of counts) {
    found.push(await measure(workers, setting));
    console.log(setting.delayMs, found.at(-1));
  }
  return found;
}
const [nearby, away] = [await measureAll(near), await measureAll(far)];

const bars = (title: string, found: Found[], of: (row: Found) => number, digits: number) => ({
  title,
  rows: found.map((row) => ({
    label: `${row.workers} ${row.workers === 1 ? 'worker' : 'workers'}`,
    value: of(row),
    text: number(of(row), digits),
    ours: true,
  })),
});
/** How many times as fast as one worker, divided by the workers. */
const scaling = (row: Found, [one]: Found[]) => row.perSecond / one!.perSecond / (row.workers / one!.workers);
const tableOf = (found: Found[]) =>
  table(
    [
      'workers',
      'files/s',
      'scaling',
      'CPU s of the workers for 1,000 files',
      'of PostgreSQL',
      'of Redis',
      'of the source',
      'busy processors',
    ],
    found.map((row) => [
      number(row.workers),
      number(row.perSecond),
      number(scaling(row, found), 2),
      number(row.workersCpu, 2),
      number(row.servers.postgres, 2),
      number(row.servers.redis, 2),
      number(row.servers.source, 2),
      number(row.busy, 1),
    ]),
  );
write('processes', {
  title: 'Processes',
  charts: [
    {
      kind: 'bars',
      title: `Files of ${number(bytes)} bytes, with simple servers`,
      panels: [
        bars('Files a second', nearby, ({ perSecond }) => perSecond, 0),
        bars(
          `Files a second at ${far.delayMs} ms, ${far.transfers} transfers in each worker`,
          away,
          ({ perSecond }) => perSecond,
          0,
        ),
      ],
    },
  ],
  text: `
${number(files)} files of ${number(bytes)} bytes of ${connections} connections. The workers have ${near.transfers} transfers each, and use PostgreSQL and Redis. Source and
store do as little as possible, and V8 has compiled the code of the workers. All share ${availableParallelism()} processors. When these are busy, more workers
are not faster; then the processor time per file says how much adding processors would help. Scaling is the throughput divided by
that of one worker and by the number of workers.

${tableOf(nearby)}

With a source that answers after ${far.delayMs} ms, ${far.transfers} transfers per worker, and ${number(far.files(1))} files for each worker:

${tableOf(away)}
`,
  ground: await ground(['redis'], [postgresVersion]),
});
