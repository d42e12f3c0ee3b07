import { join } from 'node:path';
import { newBucket, removeObjects } from './buckets.ts';
import type { Mirror } from './mirror.ts';
import { counted, ground, number, table, write } from './page.ts';
import { bareClient, type Cost, cost, median, middle, rclones, s3Flags } from './peers.ts';
import { cpuSeconds, mainThreadSeconds, mebibytes } from './proc.ts';
import { sampledAt, sharesOf } from './profile.ts';
import { newStage } from './stage.ts';

/**
 * Small files over HTTP into S3, through the whole mirror (list, detail, download, PUT, record, states): by a process that has
 * just started, and by the same one while its code is compiled, and after; and by rclone, which copies them from a plain index.
 * They run in rotation, so that other load of the machine affects all of them. `node bench/small-files.ts [FILES] [BYTES] [ROUNDS]`.
 */
const files = Number(process.argv[2] ?? 3000);
const bytes = Number(process.argv[3] ?? 100_000);
const rounds = Number(process.argv[4] ?? 3);
const servers = ['source', 'store', 'postgres', 'redis'] as const;

/** Processor seconds of the client, of its main thread, and of the servers. */
interface Spent extends Cost {
  main?: number;
  servers?: Record<(typeof servers)[number], number>;
}

await using stage = await newStage({
  source: { files, bytes, newest: Date.now() - 86_400_000, stepMs: 1000 },
  redis: true,
  s3: 'versity',
});
await stage.migrate();
const settings = { SYNC_INTERVAL: '30d', TRANSFER_CONCURRENCY: '16', CONNECTION_CONCURRENCY: '16' };
let user = 0;

let mirror!: Mirror;
let others = 0;

/** One connection's files, until all are in the bucket. */
async function mirrored(): Promise<Spent> {
  const { pid } = mirror;
  await stage.addConnections(++user, user);
  const [cpu, main] = [cpuSeconds(pid), mainThreadSeconds(pid)];
  const began = performance.now();
  await stage.operator(`/connections/connection-${user}/resync`, { mode: 'incremental' });
  const seconds = ((await stage.mirrored(user * files)) - began) / 1000;
  return {
    seconds,
    cpu: cpuSeconds(pid) - cpu,
    main: mainThreadSeconds(pid) - main,
    rss: mebibytes(pid, 'VmHWM'),
  };
}

const newOthers = async () => {
  await newBucket(stage.s3!, `others-${++others}`);
  return `others-${others}`;
};
const clients: { name: string; once: () => Promise<Spent>; all: Spent[] }[] = [
  {
    name: 'asset-mirror, just started',
    once: async () => {
      mirror = await stage.mirror('all', settings);
      return mirrored();
    },
    all: [],
  },
  { name: 'asset-mirror, then', once: mirrored, all: [] },
  { name: 'asset-mirror, warm', once: mirrored, all: [] },
];
for (const { name, path } of await rclones()) {
  const flags = `--transfers 16 copy :http: --http-url ${stage.origin}/files/ ${s3Flags(stage.s3!)}`;
  clients.push({ name, once: async () => cost(`${path} ${flags} :s3:${await newOthers()}`), all: [] });
}
const does = { origin: stage.origin!, files, atOnce: 16 };
clients.push({
  name: 'the four requests alone, in Node.js',
  once: async () => cost(bareClient({ s3: stage.s3!, bucket: await newOthers(), does })),
  all: [],
});

for (let round = 1; round <= rounds; round++) {
  for (const { name, once, all } of clients) {
    const before = stage.serversCpu();
    const spent = await once();
    const now = stage.serversCpu();
    const took = servers.map((server) => [server, now[server] - before[server]]);
    all.push({ ...spent, servers: Object.fromEntries(took) });
    console.log(
      `${name}: ${number(files / spent.seconds)} files/s, ${number((spent.cpu / files) * 1000, 2)} CPU ms each`,
    );
    if (name.endsWith('warm')) await stage.ended(mirror);
    // The stored bytes are the same for all.
    await removeObjects(stage.s3!, 'mirror', 'company-');
    if (others > 0) await removeObjects(stage.s3!, `others-${others}`, '');
  }
}

// The profile is of another process, because sampling costs time.
const profiles = join(stage.directory, 'profiles');
mirror = await stage.mirror('all', settings, profiles);
for (let i = 0; i < 2; i++) await mirrored();
const from = sampledAt();
await mirrored();
const to = sampledAt();
await stage.ended(mirror);
const shares = sharesOf(profiles, mirror.pid, from, to);

const rows = clients.map(({ name, all }) => ({ name, all, cost: middle(all) }));
const warm = rows[2]!;
const warmMain = median(warm.all.map(({ main }) => main!));

const bars = (title: string, of: (cost: Cost) => number, digits: number) => ({
  title,
  rows: rows.map(({ name, cost }) => ({
    label: name,
    value: of(cost),
    text: number(of(cost), digits),
    ours: name.startsWith('asset'),
  })),
});
write('small-files', {
  title: 'Small files',
  charts: [
    {
      kind: 'bars',
      title: `${number(files)} files of ${number(bytes)} bytes, HTTP to S3`,
      panels: [
        bars('Files a second', ({ seconds }) => files / seconds, 0),
        bars('Processor time of the client, ms a file', ({ cpu }) => (cpu / files) * 1000, 2),
      ],
    },
  ],
  text: `
${number(files)} files of ${number(bytes)} bytes from HTTP to S3; servers and clients run on one machine. The mirror lists the assets, asks for each, downloads
it, stores it and its record, and keeps its states in PostgreSQL and its jobs in Redis. rclone copies the bytes. Both have 16 files
in transfer at once, from the same source. The last row is a program in Node.js that only sends the four requests of each asset
(for the asset and its media, and to store media and record). The mirror is measured three times, with new files of another
connection each time, because it is slower until V8 has compiled the code. The figures are medians of ${counted(rounds, 'round')} in turns, and
the highest memory. The last two columns divide the figures of the warm mirror by those of the row.

${table(
  ['', 'files/s', 'CPU ms a file', 'peak RSS, MiB', 'speed of the mirror ÷ theirs', 'its CPU ÷ theirs'],
  rows.map(({ name, cost: { seconds, cpu, rss } }) => [
    name,
    number(files / seconds),
    number((cpu / files) * 1000, 2),
    number(rss),
    ...(name === warm.name
      ? ['', '']
      : [`${number(seconds / warm.cost.seconds, 2)} ×`, `${number(warm.cost.cpu / cpu, 2)} ×`]),
  ]),
)}

Processor time of the servers, CPU ms per file:

${table(
  ['', 'source', 'S3 server', 'PostgreSQL', 'Redis'],
  rows.map(({ name, all }) => [
    name,
    ...servers.map((server) => number((median(all.map(({ servers }) => servers![server])) / files) * 1000, 2)),
  ]),
)}

Processor time of the warm mirror by part, with its system calls, as V8 sampled it in another run (\`--cpu-prof\`):

${table(
  ['part', 'CPU ms a file', 'share'],
  [
    ...[...shares].map(([part, share]): [string, number] => [part, share * warmMain]),
    ["V8's other threads: collector, compiler", warm.cost.cpu - warmMain] as [string, number],
  ].map(([part, cpu]) => [part, number((cpu / files) * 1000, 2), `${number((100 * cpu) / warm.cost.cpu)} %`]),
)}
`,
  ground: await ground(['redis', 'versitygw'], [stage.postgresVersion]),
});
process.exitCode = 0;
