import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { ground, number, table, write } from './page.ts';
import { type Cost, cost, rclones, s3Flags } from './peers.ts';
import { cpuSeconds, newStage, startProgram } from './stage.ts';

/**
 * What it costs to find that nothing is new, with libraries of different sizes: a sync asks for what came in since the last
 * one; rclone lists both sides and compares them. `node bench/nothing-new.ts [SECONDS] [SIZE…]`.
 */
const seconds = Number(process.argv[2] ?? 20);
const sizes = process.argv.length > 3 ? process.argv.slice(3).map(Number) : [1000, 100_000, 1_000_000];
/** So often each connection syncs here: by itself, as ever, only sooner. */
const intervalMs = 200;
/** rclone is measured with so many at most; what it takes for more is extrapolated. */
const rcloneMost = 100_000;
const bytes = 1000;

interface Found {
  size: number;
  syncs: number;
  cpuMs: number;
  requests: number;
  statements: number;
  commands: number;
}

let postgresVersion = '';

async function syncs(size: number): Promise<Found> {
  const newest = Date.now() - 86_400_000;
  // An asset in a minute: those of the last ten are looked at again each time (CURSOR_OVERLAP).
  const stepMs = 60_000;
  await using stage = await newStage({
    source: { files: size, bytes, newest, stepMs },
    redis: true,
    s3: 'null',
    statements: true,
  });
  const { db } = stage;
  postgresVersion = stage.postgresVersion;
  await stage.migrate();
  await stage.addConnections(1, 1, newest);
  await stage.addMirrored(1, 1);
  const mirror = await stage.mirror('worker', { SYNC_INTERVAL: `${intervalMs}ms`, RECONCILE_INTERVAL: '3650d' });
  const done = async () => {
    const { rows } = await db.query(
      "SELECT count(*)::int AS n, count(*) FILTER (WHERE new + changed > 0)::int AS news FROM syncs WHERE status = 'done'",
    );
    return rows[0] as { n: number; news: number };
  };
  const full = async () => (await db.query("SELECT count(*)::int AS n FROM syncs WHERE mode = 'full'")).rows[0].n;
  // Until the code that runs has been compiled.
  while ((await done()).n < 50) await sleep(100);
  const [statements, fulls] = [await stage.statements(), await full()];
  const [first, talk, cpu] = [await done(), await stage.talk(), cpuSeconds(mirror.pid)];
  await sleep(seconds * 1000);
  const [last, said, used] = [await done(), await stage.talk(), cpuSeconds(mirror.pid)];
  if (last.news > first.news || (await full()) > fulls) throw new Error('something was new');
  const n = last.n - first.n;
  const often = [...(await stage.statements())].map(([text, calls]) => [
    text,
    (calls - (statements.get(text) ?? 0)) / n,
  ]);
  console.log('statements, and how many of them in a sync:');
  for (const [text, calls] of often.toSorted((a, b) => Number(b[1]) - Number(a[1])).slice(0, 20)) {
    console.log(`${number(Number(calls), 1).padStart(6)}  ${String(text).slice(0, 150)}`);
  }
  return {
    size,
    syncs: n,
    cpuMs: ((used - cpu) / n) * 1000,
    requests: (said.requests - talk.requests) / n,
    statements: (said.statements - talk.statements) / n,
    commands: (said.commands - talk.commands) / n,
  };
}

/**
 * rclone, with the same files on both sides: told to compare what the listings have, and nothing else, it asks for least. What
 * it finds for so many is how long it takes for each.
 */
async function listings(path: string, size: number): Promise<Cost> {
  const newest = Date.now();
  const { child: source, said: origin } = await startProgram<string>('null-source.ts', [
    JSON.stringify({ files: size, bytes, newest, stepMs: 1000 }),
  ]);
  const { child: store, said: endpoint } = await startProgram<string>('null-s3.ts', [`${size}`, `${bytes}`]);
  try {
    const s3 = { name: 'null', endpoint, region: 'us-east-1', accessKey: 'key', secretKey: 'secret' };
    const least = '--size-only --http-no-head';
    const found = await cost(
      `${path} --transfers 16 ${least} copy :http: :s3:bucket --http-url ${origin}/files/ ${s3Flags(s3)}`,
    );
    store.send('objects');
    const [objects] = await once(store, 'message');
    if (objects > 0) throw new Error(`rclone copied ${objects} objects`);
    return found;
  } finally {
    source.kill();
    store.kill();
  }
}

const found: Found[] = [];
for (const size of sizes) {
  found.push(await syncs(size));
  console.log(found.at(-1));
}
const peers: { name: string; measured: { size: number; cost: Cost }[] }[] = [];
for (const { name, path } of await rclones()) {
  const measured = [];
  for (const size of sizes.filter((size) => size <= rcloneMost)) {
    measured.push({ size, cost: await listings(path, size) });
    console.log(name, measured.at(-1));
  }
  peers.push({ name, measured });
}
/** What it takes for each is the same for more. */
const guess = ({ size, cost }: { size: number; cost: Cost }, more: number) => (cost.cpu * 1000 * more) / size;

write('nothing-new', {
  title: 'Nothing new',
  charts: [
    {
      kind: 'curves',
      title: 'Finding that nothing is new: processor time',
      x: 'assets in the library',
      y: 'CPU ms of the client each time',
      series: [
        { name: 'asset-mirror', points: found.map(({ size, cpuMs }) => [size, cpuMs]) },
        ...peers.map(({ name, measured }) => ({
          name,
          points: measured.map(({ size, cost }): [number, number] => [size, cost.cpu * 1000]),
          guessed: sizes
            .filter((size) => size > rcloneMost)
            .map((size): [number, number] => [size, guess(measured.at(-1)!, size)]),
        })),
      ],
    },
  ],
  text: `
A connection without news syncs every ${intervalMs} ms for ${seconds} s, on one worker, by its schedule: the job, the token, /me, the listing since
the last mark (with the ten assets of CURSOR_OVERLAP, which are compared with the records), and the run's record. All else
that an idle worker does in that time is in the figures. Commands are those that Redis counts, scripts' own included.

${table(
  ['assets', 'CPU ms a sync', 'requests to the library', 'SQL statements', 'Redis commands', 'syncs measured'],
  found.map((row) => [
    number(row.size),
    number(row.cpuMs, 1),
    number(row.requests, 1),
    number(row.statements, 1),
    number(row.commands, 1),
    number(row.syncs),
  ]),
)}

rclone copy with the same files on both sides, of an HTTP index into a bucket, with as little to ask for as it can be told
(\`--size-only --http-no-head\`), both answered by servers that do next to nothing. Behind a ~ it is extrapolated.

${table(
  ['', ...sizes.map((size) => `${number(size)} assets, CPU ms`)],
  peers.map(({ name, measured }) => [
    name,
    ...sizes.map((size) => {
      const own = measured.find((each) => each.size === size);
      return own ? number(own.cost.cpu * 1000) : `~ ${number(guess(measured.at(-1)!, size))}`;
    }),
  ]),
)}
`,
  ground: await ground(['redis'], [postgresVersion]),
});
