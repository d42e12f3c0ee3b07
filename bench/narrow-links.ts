import { newBucket, removeObjects } from './buckets.ts';
import type { Chart } from './chart.ts';
import { ground, number, table, write } from './page.ts';
import { cost, rclones, s3Flags } from './peers.ts';
import { cpuSeconds } from './proc.ts';
import { newStage } from './stage.ts';

/**
 * A first sync with default settings behind slow networks: HTTPS on both sides, a library far away that limits API requests,
 * and a bucket at 20 ms. `node bench/narrow-links.ts [SECONDS] [LATENCY…]`: an ideal client would need about SECONDS for each cell.
 * LIMITS and SIZES (bytes) choose other cells, SETTINGS (JSON) other settings of the mirror.
 */
const [seconds = 20, ...given] = process.argv.slice(2).map(Number);
const latencies = given.length > 0 ? given : [20, 100, 300];
const numbers = (text: string) => text.split(' ').map(Number);
const limits = numbers(process.env.LIMITS ?? '20 60 400');
const sizes = numbers(process.env.SIZES ?? '100000 2000000 200000000');
const settings = JSON.parse(process.env.SETTINGS ?? '{}');
/** The bandwidth of each network, to the library and to the bucket, for all connections together. */
const bytesPerSecond = 50e6;
const bucketMs = 20;

/** A library, its network, and the files in it. */
interface Conditions {
  latency: number;
  /** API requests per second. */
  limit: number;
  bytes: number;
  /** One connection to the library in this many is reset after 100 KB. */
  resetOneIn?: number;
  /** The library refuses nothing, but works on this many API requests at once, so that all together have `limit`. */
  workers?: number;
}

interface Cell extends Conditions {
  files: number;
  ideal: number;
  took: number;
  refused: number;
  cpu: number;
  /** In each second: requests that the library answered, and assets in flight at most. */
  answered: number[];
  limitsSeen: number[];
}

/** How long docs/operate/scaling.md says that it takes, in seconds. */
function predicted({ latency, limit, bytes, files }: Pick<Cell, 'latency' | 'limit' | 'bytes' | 'files'>): number {
  const library = files / (0.85 * limit);
  const network = (files * bytes) / (0.9 * bytesPerSecond);
  const waiting = (files * 3.5 * (latency / 1000)) / 128;
  const processors = files * (0.007 + 0.01 * (bytes / 1e6));
  return Math.max(library, network, waiting, processors);
}

const stageFor = ({ latency, limit, bytes, resetOneIn, workers }: Conditions, files: number) =>
  newStage({
    source: {
      ...{ files, bytes, newest: Date.now() - 86_400_000, stepMs: 1000 },
      ...(workers ? { workers, workMs: (workers * 1000) / limit } : { perSecond: limit }),
    },
    redis: true,
    s3: 'versity',
    tls: true,
    networks: {
      source: { delayMs: latency, jitterMs: latency / 10, bytesPerSecond, resetOneIn },
      s3: { delayMs: bucketMs, jitterMs: bucketMs / 10, bytesPerSecond },
    },
  });
const sum = (counts: number[]) => counts.reduce((all, count) => all + count, 0);

async function measure(conditions: Conditions): Promise<Cell> {
  const { limit, bytes, workers } = conditions;
  const files = Math.max(1, Math.round(Math.min(limit, bytesPerSecond / bytes) * seconds));
  await using stage = await stageFor(conditions, files);
  await stage.migrate();
  const mirror = await stage.mirror('all', { SYNC_INTERVAL: '30d', SCRUB_CYCLE: 'off', ...settings });
  await stage.addConnections(1, 1);
  const cpu = cpuSeconds(mirror.pid);
  const began = performance.now();
  await stage.operator('/connections/connection-1/resync', { mode: 'incremental' });
  const limitsSeen: number[] = [];
  const sampling = setInterval(async () => {
    const { rows } = await stage.db.query("SELECT (adaptive_limit->>'limit')::int AS n FROM connections");
    limitsSeen.push(rows[0].n);
  }, 1000);
  const took = ((await stage.mirrored(files)) - began) / 1000;
  clearInterval(sampling);
  const counted = await stage.requests();
  const [answered, refused] = [counted.answered, counted.refused].map((list) => Array.from(list, (n) => n ?? 0));
  return {
    ...conditions,
    ...{ files, took, limitsSeen },
    // Listing takes API requests, too. The first second may use the limit's reserve.
    ideal: Math.max(
      (files + Math.ceil(files / 100) + 1 - (workers ? 0 : limit)) / limit,
      (files * bytes) / bytesPerSecond,
    ),
    refused: sum(refused!) / (sum(refused!) + sum(answered!)),
    cpu: cpuSeconds(mirror.pid) - cpu,
    answered: answered!,
  };
}

/** Copies the same files by a script as people write it today: curl asks the API, rclone copies the link, with `xargs -P`. */
async function script(conditions: Conditions): Promise<string[][]> {
  const [rclone] = await rclones();
  if (!rclone) return [];
  const files = conditions.limit * 10;
  await using stage = await stageFor(conditions, files);
  const s3 = { ...stage.s3!, endpoint: stage.environment.S3_ENDPOINT! };
  const ca = `--ca-cert ${stage.ca}`;
  const rows: string[][] = [];
  const run = async (name: string, command: (bucket: string) => string) => {
    const bucket = `others-${rows.length}`;
    await newBucket(stage.s3!, bucket);
    const spent = await cost(command(bucket));
    await removeObjects(stage.s3!, bucket, '');
    rows.push([name, number(files / spent.seconds, 1), number((spent.cpu / files) * 1000, 1)]);
    console.log(rows.at(-1)!.join(', '));
  };
  const api = `curl --silent --cacert ${stage.ca} --retry 20 --header "Authorization: Bearer svca_1" ${stage.origin}/api/v1/assets/asset-1-`;
  for (const atOnce of [8, 16, 32, 64]) {
    await run(
      `curl and ${rclone.name} copyurl, ${atOnce} at once`,
      (bucket) =>
        `seq 0 ${files - 1} | xargs -P ${atOnce} -I{} sh -c '${rclone.path} copyurl ${ca} ${s3Flags(s3)} "$(${api}{} | sed "s/.*\\"url\\":\\"\\([^\\"]*\\).*/\\1/")" :s3:${bucket}/{}'`,
    );
  }
  await run(
    `${rclone.name} copy from a plain index, 64 at once, without the API`,
    (bucket) =>
      `${rclone.path} copy --transfers 64 ${ca} --http-url ${stage.origin}/files/ :http: ${s3Flags(s3)} :s3:${bucket}`,
  );
  return rows;
}

async function measured(conditions: Conditions): Promise<Cell> {
  const cell = await measure(conditions);
  const { files, ideal, took, refused, cpu, answered, limitsSeen } = cell;
  console.log(
    `${JSON.stringify(conditions)}: ${files} files in ${took.toFixed(1)} s, ${((100 * ideal) / took).toFixed(0)} % of the ` +
      `ideal, ${(100 * refused).toFixed(2)} % refused, ${cpu.toFixed(1)} CPU s\n  answered ${answered.join(' ')}\n  limits ${limitsSeen.join(' ')}`,
  );
  return cell;
}
const cells: Cell[] = [];
for (const bytes of sizes) {
  for (const limit of limits) {
    for (const latency of latencies) cells.push(await measured({ latency, limit, bytes }));
  }
}
const shown = cells.find(({ latency, limit }) => latency === 100 && limit === 60) ?? cells[0]!;
const others = process.env.ALONE ? [] : await script(shown);
const usual = { latency: 100, limit: 60, bytes: 100_000 };
const hard: (Cell & { library: string })[] = [];
for (const [library, conditions] of [
  ['refuses nothing, but works on six requests at once', { ...usual, workers: 6 }],
  ['resets one connection in ten after 100 KB, files of 2 MB', { ...usual, bytes: 2_000_000, resetOneIn: 10 }],
] as const) {
  if (!process.env.ALONE) hard.push({ library, ...(await measured(conditions)) });
}

const over = (name: string, counts: number[]) => ({
  name,
  points: counts.map((count, second): [number, number] => [second + 1, Math.max(count, 1)]),
});
const charts: Chart[] = [
  {
    kind: 'curves',
    title: `${shown.limit} requests per second allowed, at ${shown.latency} ms`,
    x: 'seconds',
    y: 'per second',
    series: [over('requests answered', shown.answered), over('assets in flight at most', shown.limitsSeen)],
  },
  ...hard.map(
    ({ library, answered, limitsSeen }): Chart => ({
      kind: 'curves',
      title: `A library that ${library}`,
      x: 'seconds',
      y: 'per second',
      series: [over('requests answered', answered), over('assets in flight at most', limitsSeen)],
    }),
  ),
  {
    kind: 'bars',
    title: 'Measured time, and the time by the formula',
    panels: [
      {
        title: 'Seconds measured ÷ seconds by the formula',
        rows: cells.map((cell) => {
          const ratio = cell.took / predicted(cell);
          const label = `${number(cell.bytes / 1000)} KB, ${cell.limit}/s, ${cell.latency} ms`;
          return { label, value: ratio, text: number(ratio, 2), ours: true };
        }),
      },
    ],
  },
];
write('narrow-links', {
  title: 'Behind slow networks',
  charts,
  text: `
A first sync with default settings, and HTTPS on both sides. The network has ${number(bytesPerSecond / 1e6)} MB/s to the library and as much to the bucket, which
answers after ${bucketMs} ms. The library answers after the given latency and allows the given number of requests. Others get 429 with
\`Retry-After: 1\`. An ideal client uses the whole limit of the library or the whole network from the first moment. With 400
requests per second and small files, the processors are the limit, because servers and networks run on them, too. The formula is
that of [Scaling](../../docs/operate/scaling.md#how-long-does-a-first-sync-take).

${table(
  [
    'file size',
    'requests/s allowed',
    'latency',
    'files',
    'ideal, s',
    'took, s',
    'formula, s',
    'of the ideal',
    'refused',
    'CPU ms a file',
  ],
  cells.map(({ bytes, limit, latency, files, ideal, took, refused, cpu }) => [
    `${number(bytes / 1000)} KB`,
    number(limit),
    `${latency} ms`,
    number(files),
    number(ideal, 1),
    number(took, 1),
    number(predicted({ latency, limit, bytes, files }), 1),
    `${number((100 * ideal) / took)} %`,
    `${number(100 * refused, 2)} %`,
    number((cpu / files) * 1000, 1),
  ]),
)}

Other clients, with files of ${number(shown.bytes / 1000)} KB, ${shown.limit} requests per second allowed, at ${shown.latency} ms; the mirror: ${number(shown.files / shown.took, 1)} files/s.

${table(['', 'files/s', 'CPU ms a file'], others)}

Libraries that are harder to adapt to, at ${usual.latency} ms and with ${usual.limit} requests per second:

${table(
  ['a library that', 'files', 'ideal, s', 'took, s', 'of the ideal', 'refused', 'assets in flight at the end, at most'],
  hard.map(({ library, files, ideal, took, refused, limitsSeen }) => [
    library,
    number(files),
    number(ideal, 1),
    number(took, 1),
    `${number((100 * ideal) / took)} %`,
    `${number(100 * refused, 2)} %`,
    number(limitsSeen.at(-1) ?? 0),
  ]),
)}
`,
  ground: await ground(['redis', 'versitygw', 'curl']),
});
process.exitCode = 0;
