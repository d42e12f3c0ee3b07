import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createLog } from '../../src/log.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/store/embedded.ts';
import { until } from '../support/until.ts';

const log = createLog({ level: 'silent', pretty: false });
let directory: string;
const directories: string[] = [];
let server: EmbeddedPostgres;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'asset-mirror-embedded-'));
  directories.push(directory);
  // So that as root, too, the data is in here and goes with it.
  await chmod(directory, 0o755);
  server = await startEmbeddedPostgres({ directory, log });
});
afterAll(async () => {
  await server?.stop();
  for (const path of directories) await rm(path, { recursive: true, force: true });
});

async function ask(sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: server.url });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end().catch(() => {});
  }
}

test('a directory belongs to one process at a time', async () => {
  await expect(startEmbeddedPostgres({ directory, log })).rejects.toThrow(/in use by another asset-mirror/);
  expect(await ask('SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

test('a server that is killed is started again where it was, with what it held', async () => {
  await ask('CREATE TABLE kept (n int)');
  await ask('INSERT INTO kept VALUES (7)');
  const [pid] = (await readFile(join(directory, 'postgres', 'postmaster.pid'), 'utf8')).split('\n');
  process.kill(Number(pid), 'SIGKILL');
  await until('the server to be gone', () =>
    ask('SELECT 1').then(
      () => false,
      () => true,
    ),
  );
  expect(await until('it to be back', () => ask('SELECT n FROM kept').catch(() => false), 40_000)).toEqual([{ n: 7 }]);
});

test.each(['on a new directory', 'again'])(
  'of two that start %s at the same time one has it, and the other is told',
  async (which) => {
    await server.stop();
    if (which !== 'again') {
      directory = await mkdtemp(join(tmpdir(), 'asset-mirror-embedded-'));
      directories.push(directory);
      await chmod(directory, 0o755);
    }
    const started = await Promise.allSettled([0, 1].map(() => startEmbeddedPostgres({ directory, log })));
    for (const one of started) if (one.status === 'fulfilled') server = one.value;
    expect(started.filter(({ status }) => status === 'rejected')).toEqual([
      {
        status: 'rejected',
        reason: expect.objectContaining({ message: expect.stringContaining('need a DATABASE_URL') }),
      },
    ]);
    expect(await ask('SELECT 1 AS one')).toEqual([{ one: 1 }]);
  },
);

test('one that is just ending is waited for, and started', async () => {
  const ending = server.stop();
  server = (await until('its turn', () =>
    startEmbeddedPostgres({ directory, log }).catch((error) => {
      if (!/in use by another/.test(error.message)) throw error;
    }),
  )) as EmbeddedPostgres;
  await ending;
  expect(await until('it to answer', () => ask('SELECT 1 AS one').catch(() => false))).toEqual([{ one: 1 }]);
});

test.skipIf(process.platform !== 'linux')('one that ends without an answer to who asks it is started', async () => {
  const [pid, , , port] = (await readFile(join(directory, 'postgres', 'postmaster.pid'), 'utf8')).split('\n');
  process.kill(Number(pid), 'SIGSTOP');
  const ending = server.stop();
  const next = startEmbeddedPostgres({ directory, log });
  await until('a question that nobody reads', () => unread(Number(port)));
  process.kill(Number(pid), 'SIGKILL');
  server = await next;
  await ending;
  expect(await ask('SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

/** Whether bytes wait in a connection to this port of 127.0.0.1 (proc(5): local address, remote, state, tx:rx). */
async function unread(port: number): Promise<boolean> {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return (await readFile('/proc/net/tcp', 'utf8')).split('\n').some((line) => {
    const [, address, , , queues] = line.trim().split(/\s+/);
    return address?.endsWith(local) && Number.parseInt(queues!.split(':')[1]!, 16) > 0;
  });
}

test.skipIf(process.platform !== 'linux')('a server that cannot start says why', async () => {
  const settings = join(directory, 'postgres', 'postgresql.conf');
  const before = await readFile(settings, 'utf8');
  const [pid, , , port] = (await readFile(join(directory, 'postgres', 'postmaster.pid'), 'utf8')).split('\n');
  process.kill(Number(pid), 'SIGSTOP');
  const ending = server.stop();
  await writeFile(settings, 'no such setting');
  const next = startEmbeddedPostgres({ directory, log });
  const told = expect(next).rejects.toThrow(/start PostgreSQL in .*: .*postgresql.conf/);
  await until('a question that nobody reads', () => unread(Number(port)));
  process.kill(Number(pid), 'SIGCONT');
  await told;
  await ending;
  await writeFile(settings, before);
  server = await startEmbeddedPostgres({ directory, log });
});

test('one that is stopped while its file is empty signals nobody', async () => {
  const file = join(directory, 'postgres', 'postmaster.pid');
  const before = await readFile(file, 'utf8');
  const signals: string[] = [];
  const note = (name: string) => signals.push(name);
  process.on('SIGINT', note);
  try {
    await writeFile(file, '');
    await server.stop();
    expect(signals).toEqual([]);
  } finally {
    process.off('SIGINT', note);
    await writeFile(file, before);
  }
  // It runs on, and whoever comes next has it.
  server = await startEmbeddedPostgres({ directory, log });
  expect(await ask('SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

test('one that is lost is made anew, and is empty', async () => {
  await ask('CREATE TABLE lost (id int)');
  await server.stop();
  await rm(join(directory, 'postgres'), { recursive: true });
  server = await startEmbeddedPostgres({ directory, log });
  expect(await ask("SELECT to_regclass('lost') AS it")).toEqual([{ it: null }]);
  // That of the one before may turn up again, and wants its password.
  const [before, now] = await Promise.all(
    ['postgres-password.lost', 'postgres-password'].map((name) => readFile(join(directory, name), 'utf8')),
  );
  expect(before).toMatch(/^[\da-f]{48}$/);
  expect(now).not.toBe(before);
});
