// @module-tag slow
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import pg from 'pg';
import { request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { chunksOf } from '../src/library/index.ts';
import { type Admin, type Library, startTestLibrary } from './support/library.ts';
import { type Ground, keysOf, newGround, operatorOf, richest, spawnMirror } from './support/mirror.ts';
import { freePort } from './support/ports.ts';
import { until } from './support/until.ts';

type Mirror = Awaited<ReturnType<typeof spawnMirror>>;

const kind = richest();
const part = 16 * 2 ** 20;
const large = { parts: 6, bytes: 5 * part + 4321 };
const small = 305;

let library: Library;
let admin: Admin;
let ground: Ground;
let database: pg.Client;
let service: Awaited<ReturnType<typeof newBalancer>>;
const mirrors: Mirror[] = [];

beforeAll(async () => {
  service = await newBalancer();
  ground = await newGround({
    port: service.port,
    redis: kind.redis,
    s3: kind.s3,
    environment: { SHUTDOWN_GRACE: '3s', TRANSFER_STALL_TIMEOUT: '10s' },
  });
  database = new pg.Client({ connectionString: ground.environment.DATABASE_URL });
  await database.connect();
  ({ library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] }));
});
afterAll(async () => {
  for (const mirror of mirrors) await mirror.kill('SIGKILL');
  await library?.close();
  await service?.close();
  await database?.end();
  await ground?.clear();
});

test(`a rolling restart of web and workers during a sync loses no attempt, answer or stored part (${kind.name})`, {
  timeout: 400_000,
}, async () => {
  const { ids, expected } = await fillLibrary();
  await slowDown(ids);
  const web = await Promise.all([start('web'), start('web')]);
  const workers = await Promise.all([start('worker'), start('worker'), start('worker')]);
  await rememberParts();
  const operator = operatorOf(ground);
  const connectionId = await operator.connect();
  await until('one of the workers to list', syncOwner);
  const firstOfNew = start('worker');
  await until('parts of each large file to be stored', async () => {
    const { rows } = await database.query('SELECT asset_id FROM parts_seen GROUP BY asset_id HAVING count(*) >= 2');
    return rows.length === ids.length;
  });
  const [run] = (await operator.api('GET', `/syncs?connectionId=${connectionId}`)).syncs;
  expect(run).toMatchObject({ status: 'running' });

  const asking = askAllTheTime();
  // It lists instead if the first one paused for longer than its lease.
  workers.push(await firstOfNew);
  const began = await whoLists(workers);
  expect(began).toBeDefined();
  await Promise.all([replaceWeb(web), replaceWorkers(workers)]);
  const answers = await asking.end();
  await admin.clearFaults();
  await operator.quiet();

  // The run continued where it was: no asset was seen twice.
  expect(await operator.api('GET', `/syncs?connectionId=${connectionId}`)).toMatchObject({
    syncs: [{ id: run.id, status: 'done', seen: ids.length + small, new: ids.length + small, error: null }],
  });
  const { rows: outcomes } = await database.query('SELECT state, attempts, count(*)::int FROM assets GROUP BY 1, 2');
  expect(outcomes).toEqual([{ state: 'mirrored', attempts: 0, count: ids.length + small }]);
  expectHandover([...web, ...workers], began!);
  await expectPartsOnce(ids);
  await expectFiles(ids, expected);

  expect(answers.failed).toEqual([]);
  expect(answers.taken).toBeGreaterThan(10);
});

/** Two large files, the newest of all, and many small ones. */
async function fillLibrary() {
  await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
  const add = (name: string, uploadDate: number, content: { text: string } | { seed: string; size: number }) =>
    admin.addAsset({
      companyId: 'acme',
      name,
      mimeType: 'application/octet-stream',
      assetType: 'documents',
      uploadDate,
      thumbnail: false,
      content,
    });
  const begun = Date.UTC(2024, 0, 1);
  for (let n = 0; n < small; n++) await add('small.bin', begun + n * 1000, { text: `small ${n}` });
  const ids: string[] = [];
  const expected: string[] = [];
  for (const seed of ['one', 'two']) {
    ids.push((await add('large.bin', begun + 86_400_000, { seed, size: large.bytes })).id);
    const hash = createHash('sha256');
    for (const chunk of chunksOf(seed, 0, large.bytes)) hash.update(chunk);
    expected.push(hash.digest('hex'));
  }
  return { ids, expected };
}

/** The first page arrives at once, the others slowly; of each large file some parts arrive, and then hardly a byte. */
async function slowDown(ids: string[]): Promise<void> {
  await admin.addFault({ endpoint: 'assets', skip: 1, latency: 40_000 });
  for (const assetId of ids) await admin.addFault({ endpoint: 'media', assetId, skip: 3, stallAfter: 100_000 });
}

async function start(role: 'web' | 'worker'): Promise<Mirror> {
  const port = await freePort();
  const own = { ...ground, environment: { ...ground.environment, PORT: String(port) } };
  const mirror = await spawnMirror(own, library, role);
  mirrors.push(mirror);
  if (role === 'web') service.join(mirror, port);
  return mirror;
}

async function stop(mirror: Mirror): Promise<void> {
  service.leave(mirror);
  expect(await mirror.kill('SIGTERM'), mirror.output()).toBe(0);
}

async function replaceWeb(web: Mirror[]): Promise<void> {
  for (const mirror of web) {
    await start('web');
    await stop(mirror);
  }
}

/** The process that lists stops next. */
async function replaceWorkers(workers: Mirror[]): Promise<void> {
  for (const left = new Set(workers); left.size > 0; ) {
    const mirror = (await whoLists([...left])) ?? [...left][0]!;
    left.delete(mirror);
    await stop(mirror);
    if (left.size > 0) await start('worker');
  }
}

/** What identifies the process that lists now. */
async function syncOwner(): Promise<string | null> {
  return (await database.query('SELECT sync_owner FROM connections')).rows[0].sync_owner;
}

/** The process that lists now, if there is one. */
async function whoLists(among: Mirror[]): Promise<Mirror | undefined> {
  const id = await syncOwner();
  return among.find(({ child }) => id?.includes(`-${child.pid}-`));
}

/** Parts are forgotten when their file is whole: each is written down when it is stored. */
async function rememberParts(): Promise<void> {
  await database.query(`
    CREATE TABLE parts_seen (asset_id text, number int, at timestamptz DEFAULT clock_timestamp());
    CREATE FUNCTION remember_part() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO parts_seen (asset_id, number) VALUES (new.asset_id, new.number);
      RETURN NULL;
    END $$;
    CREATE TRIGGER remember_part AFTER INSERT ON upload_parts FOR EACH ROW EXECUTE FUNCTION remember_part();`);
}

/** Those that stopped handed over their work, and another process than the one that began ended the sync. */
function expectHandover(gone: Mirror[], began: Mirror): void {
  for (const mirror of mirrors)
    expect(mirror.output()).not.toMatch(/asset\.retry_scheduled|asset\.failed|part\.retry_scheduled/);
  expect(gone.filter((mirror) => mirror.output().includes('work.handed_back'))).not.toEqual([]);
  expect(mirrors.filter((mirror) => mirror.output().includes('transfer resumed'))).not.toEqual([]);
  const ended = mirrors.filter((mirror) => mirror.output().includes('"sync done"'));
  expect(ended).toHaveLength(1);
  expect(ended[0]!.child.pid).not.toBe(began.child.pid);
}

/** At the source: stored bytes were not requested again. */
async function expectPartsOnce(ids: string[]): Promise<void> {
  const { rows: stored } = await database.query(
    'SELECT asset_id, number, count(*)::int AS times, min(at) AS at FROM parts_seen GROUP BY 1, 2',
  );
  expect(stored).toHaveLength(ids.length * large.parts);
  const asked = await admin.requests({ endpoint: 'media' });
  for (const { asset_id: id, number, times, at } of stored) {
    expect(times).toBe(1);
    const again = asked.filter(
      (entry) =>
        entry.assetId === id && Math.floor(firstByte(entry.range) / part) + 1 === number && entry.at > at.getTime(),
    );
    expect(again, `part ${number} of ${id}`).toEqual([]);
  }
}

/** The content of each large file; everything is there, and nothing else. */
async function expectFiles(ids: string[], expected: string[]): Promise<void> {
  for (const [index, id] of ids.entries()) {
    const hash = createHash('sha256');
    for await (const chunk of (await ground.storage.get(`acme/_/${id}/large.bin`))!) hash.update(chunk);
    expect(hash.digest('hex')).toBe(expected[index]);
  }
  expect(await keysOf(ground.storage)).toHaveLength((ids.length + small) * 2);
  expect(await ground.leftovers()).toEqual([]);
}

const firstByte = (range: string | null) => Number(/^bytes=(\d+)-/.exec(range ?? '')?.[1] ?? 0);

/** A client that sends requests all the time over new connections: a stopping web process must lose no answer. */
function askAllTheTime() {
  let ended = false;
  const answers = { taken: 0, failed: [] as string[] };
  const url = `${ground.publicUrl}/api/status`;
  const headers = { authorization: `Bearer ${ground.environment.ADMIN_TOKEN}` };
  const asking = (async () => {
    while (!ended) {
      try {
        const { statusCode, body } = await request(url, { headers, reset: true });
        await body.dump();
        if (statusCode === 200) answers.taken++;
        else answers.failed.push(`${statusCode}`);
      } catch (error) {
        answers.failed.push(String(error));
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  })();
  return {
    async end() {
      ended = true;
      await asking;
      return answers;
    },
  };
}

/** What a Service of Kubernetes does: connections go to the processes in turn, and none to one that is stopping. */
async function newBalancer() {
  const behind = new Map<Mirror, number>();
  let accepted = 0;
  const server = createServer((client) => {
    const ports = [...behind.values()];
    const upstream = connect(ports[accepted++ % ports.length]!, '127.0.0.1');
    client.pipe(upstream).pipe(client);
    client.on('error', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
  });
  server.listen(await freePort(), '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    join: (mirror: Mirror, port: number) => behind.set(mirror, port),
    leave: (mirror: Mirror) => behind.delete(mirror),
    close: () => new Promise((resolve) => server.close(resolve)),
  };
}
