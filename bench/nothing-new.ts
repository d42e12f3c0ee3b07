import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BareSync } from './bare-sync.ts';
import type { Mirror } from './mirror.ts';
import { ground, number, table, write } from './page.ts';
import { type Cost, cost, rclones, s3Flags } from './peers.ts';
import { cpuSeconds, startProgram } from './proc.ts';
import { newStage, type Stage } from './stage.ts';

/**
 * The cost of a sync without news, with libraries of different sizes: a sync requests the uploads since the last
 * one; rclone lists both sides and compares them. `node bench/nothing-new.ts [SECONDS] [SIZE…]`.
 */
const seconds = Number(process.argv[2] ?? 20);
const sizes = process.argv.length > 3 ? process.argv.slice(3).map(Number) : [1000, 100_000, 1_000_000];
/** A worker that has started comes to rest. */
const settleMs = 10_000;
/** As many syncs as 10,000 connections have by default. */
const connections = 100;
const intervalMs = 3000;
const bytes = 1000;

/** The work of a worker and its servers: per second, or per sync. */
interface Work {
  cpuMs: number;
  requests: number;
  statements: number;
  commands: number;
}

/** Of a sync, without the work of an idle worker in the same time. */
interface Syncs {
  n: number;
  each: Work;
}

interface Found {
  size: number;
  syncs: Syncs;
  /** Of an idle worker, in a second. */
  idle: Work;
}

let postgresVersion = '';

/** The work of a mirror during this time in ms. */
async function work(stage: Stage, mirror: Mirror, ms: number): Promise<Work> {
  const [talk, cpu] = [await stage.talk(), cpuSeconds(mirror.pid)];
  await sleep(ms);
  const [said, used] = [await stage.talk(), cpuSeconds(mirror.pid)];
  return {
    cpuMs: (used - cpu) * 1000,
    requests: said.requests - talk.requests,
    statements: said.statements - talk.statements,
    commands: said.commands - talk.commands,
  };
}

/** The work per item of `n`, without the work of `seconds` idle seconds. */
function each(all: Work, n: number, idle?: Work, seconds = 0): Work {
  const of = (key: keyof Work) => (all[key] - (idle ? idle[key] * seconds : 0)) / n;
  return { cpuMs: of('cpuMs'), requests: of('requests'), statements: of('statements'), commands: of('commands') };
}

const never = '365d';

/** The cost of syncs. */
async function syncs(stage: Stage, idle: Work): Promise<Syncs> {
  const { db } = stage;
  const done = async () => {
    const { rows } = await db.query(
      "SELECT count(*)::int AS n, count(*) FILTER (WHERE new + changed > 0)::int AS news FROM syncs WHERE status = 'done'",
    );
    return rows[0] as { n: number; news: number };
  };
  const full = async () => (await db.query("SELECT count(*)::int AS n FROM syncs WHERE mode = 'full'")).rows[0].n;
  const compiled = (await done()).n + 150;
  const mirror = await stage.mirror('worker', { SYNC_INTERVAL: `${intervalMs}ms`, RECONCILE_INTERVAL: never });
  await sleep(settleMs);
  // Until the code that runs has been compiled.
  while ((await done()).n < compiled) await sleep(100);
  const fulls = await full();
  const first = await done();
  const all = await work(stage, mirror, seconds * 1000);
  const last = await done();
  if (last.news > first.news || (await full()) > fulls) throw new Error('something was new');
  await stage.ended(mirror);
  const n = last.n - first.n;
  return { n, each: each(all, n, idle, seconds) };
}

async function nothingNew(size: number): Promise<Found> {
  const newest = Date.now() - 86_400_000;
  // An asset in a minute: those of the last ten minutes are listed again each time (CURSOR_OVERLAP).
  const stepMs = 60_000;
  await using stage = await newStage({
    source: { files: size, bytes, newest, stepMs, shared: true },
    redis: true,
    s3: 'null',
    statements: true,
  });
  postgresVersion = stage.postgresVersion;
  await stage.migrate();
  await stage.addConnections(1, connections, newest);
  await stage.addMirrored(1, 1);
  const idler = await stage.mirror('worker', { SYNC_INTERVAL: never, RECONCILE_INTERVAL: never });
  await sleep(settleMs);
  const idle = each(await work(stage, idler, seconds * 1000), seconds);
  await stage.ended(idler);
  return { size, syncs: await syncs(stage, idle), idle };
}

/** The CPU ms of a plain program for a sync (`bare-sync.ts`): only the same calls of the same libraries. */
async function bareSync(): Promise<number> {
  const newest = Date.now() - 86_400_000;
  await using stage = await newStage({ source: { files: 1000, bytes, newest, stepMs: 60_000 }, redis: true });
  /** CPU seconds and syncs per second, with this number of schedules. */
  const rate = async (schedules: number) => {
    const order: BareSync = {
      redisUrl: stage.environment.REDIS_URL!,
      databaseUrl: stage.environment.DATABASE_URL!,
      origin: stage.origin!,
      since: newest - 10 * 60_000,
      every: intervalMs,
      schedules,
    };
    const { child } = await startProgram<string>('bare-sync.ts', [JSON.stringify(order)]);
    const done = async () => {
      child.send('done');
      return ((await once(child, 'message')) as [number])[0];
    };
    try {
      await sleep(settleMs);
      while (schedules > 0 && (await done()) < 150) await sleep(100);
      const [first, cpu] = [await done(), cpuSeconds(child.pid!)];
      await sleep(seconds * 1000);
      return { cpu: (cpuSeconds(child.pid!) - cpu) / seconds, syncs: ((await done()) - first) / seconds };
    } finally {
      child.kill();
    }
  };
  const idle = await rate(0);
  const all = await rate(connections);
  return ((all.cpu - idle.cpu) / all.syncs) * 1000;
}

/**
 * rclone, with the same files on both sides: set to compare only the listings, it sends the fewest requests. Its
 * time for this number of files gives the time per file.
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
    // Newer ones sort listings of 1,000,000 or more on disk, and then ask for each file of both sides by itself.
    const found = await cost(
      `RCLONE_LIST_CUTOFF=1000000000 ${path} --transfers 16 ${least} copy :http: :s3:bucket --http-url ${origin}/files/ ${s3Flags(s3)}`,
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
  found.push(await nothingNew(size));
  const line = ({ each }: Syncs) =>
    `${number(each.cpuMs, 1)} CPU ms, ${number(each.statements, 1)} statements, ${number(each.requests, 1)} requests`;
  console.log(`${number(size)} assets: ${line(found.at(-1)!.syncs)}`);
}
const bare = await bareSync();
const peers: { name: string; measured: { size: number; cost: Cost }[] }[] = [];
for (const { name, path } of await rclones()) {
  const measured = [];
  for (const size of sizes) {
    measured.push({ size, cost: await listings(path, size) });
    console.log(`${name}, ${number(size)} files: ${number(measured.at(-1)!.cost.cpu * 1000)} CPU ms`);
  }
  peers.push({ name, measured });
}

write('nothing-new', {
  title: 'Nothing new',
  charts: [
    {
      kind: 'curves',
      title: 'A sync that finds nothing new: processor time',
      x: 'assets in the library',
      y: 'CPU ms of the client per sync',
      series: [
        { name: 'asset-mirror', points: found.map(({ size, syncs }) => [size, syncs.each.cpuMs]) },
        ...peers.map(({ name, measured }) => ({
          name,
          points: measured.map(({ size, cost }): [number, number] => [size, cost.cpu * 1000]),
        })),
      ],
    },
  ],
  text: `
A scheduled sync that finds nothing new, on one worker: the job, the token, /me, the listing since the last high-water mark (with the ten
assets of CURSOR_OVERLAP, which are compared with the records), and the record of the sync. ${connections} connections read the same
company, every ${intervalMs / 1000} s: as many syncs as 10,000 connections have every 5 minutes. This is measured for ${seconds} s. The work of
an idle worker was measured before, and is subtracted; it is in the second table. Redis counts the commands, with those of scripts.

A program with the same libraries that only runs such jobs, with two requests and three empty statements each, takes ${number(bare, 1)} CPU ms.

${table(
  ['assets', 'CPU ms a sync', 'requests to the library', 'SQL statements', 'Redis commands', 'syncs measured'],
  found.map(({ size, syncs: { n, each } }) => [
    number(size),
    number(each.cpuMs, 1),
    number(each.requests, 1),
    number(each.statements, 1),
    number(each.commands, 1),
    number(n),
  ]),
)}

${table(
  ['assets', 'idle: CPU ms/s', 'SQL statements/s', 'Redis commands/s'],
  found.map(({ size, idle }) => [
    number(size),
    number(idle.cpuMs, 1),
    number(idle.statements, 1),
    number(idle.commands, 1),
  ]),
)}

\`rclone copy\` from an HTTP index into a bucket that has the same files already. Both servers are simple ones. The options make
rclone ask for as little as possible: \`--size-only --http-no-head\`, and \`--list-cutoff\` at its maximum, because it would request
each file alone otherwise.

${table(
  ['', ...sizes.map((size) => `${number(size)} assets, CPU ms`)],
  peers.map(({ name, measured }) => [name, ...measured.map(({ cost }) => number(cost.cpu * 1000))]),
)}
`,
  ground: await ground(['redis'], [postgresVersion]),
});
