import { join } from 'node:path';
import { ground, number, table, write } from './page.ts';
import { bareClient, type Cost, cost, rclones, s3Flags } from './peers.ts';
import { sampledAt, sharesOf } from './profile.ts';
import { cpuSeconds, type Mirror, mainThreadSeconds, mebibytes, newBucket, newStage } from './stage.ts';

/**
 * Small files over HTTP into S3, through the whole mirror (list, detail, download, PUT, record, states): by a process that has
 * just started, and by the same one while its code is compiled, and after; and by rclone, which copies them from a plain index.
 * `node bench/small-files.ts [FILES] [BYTES]`.
 */
const files = Number(process.argv[2] ?? 3000);
const bytes = Number(process.argv[3] ?? 100_000);

await using stage = await newStage({
  source: { files, bytes, newest: Date.now() - 86_400_000, stepMs: 1000 },
  redis: true,
  s3: 'versity',
});
await stage.migrate();
const settings = { SYNC_INTERVAL: '30d', TRANSFER_CONCURRENCY: '16', CONNECTION_CONCURRENCY: '16' };
let user = 0;

interface Mirrored extends Cost {
  /** Of `cpu`, what the main thread took. */
  main: number;
  servers: string[];
}

/** One connection's files, until all are in the bucket. */
async function mirrored({ pid }: Mirror): Promise<Mirrored> {
  await stage.addConnections(++user, user);
  const [cpu, main, servers] = [cpuSeconds(pid), mainThreadSeconds(pid), stage.serversCpu()];
  const began = performance.now();
  await stage.operator(`/connections/connection-${user}/resync`, { mode: 'incremental' });
  const seconds = ((await stage.mirrored(user * files)) - began) / 1000;
  const now = stage.serversCpu();
  const names = ['source', 'store', 'postgres', 'redis'] as const;
  return {
    seconds,
    cpu: cpuSeconds(pid) - cpu,
    main: mainThreadSeconds(pid) - main,
    rss: mebibytes(pid, 'VmHWM'),
    servers: names.map((name) => number(((now[name] - servers[name]) / files) * 1000, 2)),
  };
}
const clients: { name: string; cost: Cost & { servers?: string[] } }[] = [];
const mirror = await stage.mirror('all', settings);
const [started, then, warm] = [await mirrored(mirror), await mirrored(mirror), await mirrored(mirror)];
clients.push(
  { name: 'asset-mirror, just started', cost: started },
  { name: 'asset-mirror, then', cost: then },
  { name: 'asset-mirror, warm', cost: warm },
);
await stage.ended(mirror);

// By another one, for to be sampled costs time.
const profiles = join(stage.directory, 'profiles');
const profiled = await stage.mirror('all', settings, profiles);
for (let i = 0; i < 2; i++) await mirrored(profiled);
const from = sampledAt();
await mirrored(profiled);
const to = sampledAt();
await stage.ended(profiled);
const shares = sharesOf(profiles, profiled.pid, from, to);

for (const { name, path } of await rclones()) {
  const bucket = name.replace(/\W/g, '-');
  await newBucket(stage.s3!, bucket);
  clients.push({
    name,
    cost: await cost(
      `${path} --transfers 16 copy :http: :s3:${bucket} --http-url ${stage.origin}/files/ ${s3Flags(stage.s3!)}`,
    ),
  });
}
await newBucket(stage.s3!, 'bare');
clients.push({
  name: 'the four requests alone, in Node.js',
  cost: await cost(bareClient({ s3: stage.s3!, bucket: 'bare', does: { origin: stage.origin!, files, atOnce: 16 } })),
});

const bars = (title: string, of: (cost: Cost) => number, digits: number) => ({
  title,
  rows: clients.map(({ name, cost }) => ({
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
${number(files)} files of ${number(bytes)} bytes, HTTP to S3, servers and client on one machine. The mirror lists, asks for each asset, downloads
it, stores it and its record, and keeps its states in PostgreSQL and its jobs in Redis; rclone copies the bytes; both
have 16 files in hand at once, from the same source. The last row is a program in Node.js that sends the four requests of each
asset (the asset, its media, the media and a record into S3) and nothing else: no list, no sum, no records, no states. What V8 has not compiled yet costs more: so the mirror is measured three times, each time
with as many new files of another connection.

${table(
  ['', 'files/s', 'CPU ms a file', 'peak RSS, MiB'],
  clients.map(({ name, cost: { seconds, cpu, rss } }) => [
    name,
    number(files / seconds),
    number((cpu / files) * 1000, 2),
    number(rss),
  ]),
)}

What the servers spend on it, CPU ms a file:

${table(
  ['', 'source', 'S3 server', 'PostgreSQL', 'Redis'],
  clients.flatMap(({ name, cost: { servers } }) => (servers ? [[name, ...servers]] : [])),
)}

Where the processor time of the mirror goes when it is warm, by what V8 has sampled of another run (\`--cpu-prof\`), with the system
calls that each part makes:

${table(
  ['part', 'CPU ms a file', 'share'],
  [
    ...[...shares].map(([part, share]): [string, number] => [part, share * warm.main]),
    ["V8's other threads: collector, compiler", warm.cpu - warm.main] as [string, number],
  ].map(([part, cpu]) => [part, number((cpu / files) * 1000, 2), `${number((100 * cpu) / warm.cpu)} %`]),
)}
`,
  ground: await ground(['redis', 'versitygw'], [stage.postgresVersion]),
});
process.exitCode = 0;
