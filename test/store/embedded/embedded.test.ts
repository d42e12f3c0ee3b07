import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createLog } from '../../../src/floor/log.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../../src/store/embedded/embedded.ts';
import { until } from '../../support/until.ts';

const log = createLog({ level: 'silent', pretty: false });
let directory: string;
const directories: string[] = [];
let server: EmbeddedPostgres;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'asset-mirror-embedded-'));
  directories.push(directory);
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

test('a directory belongs to one process at a time', { tags: 'slow' }, async () => {
  await expect(startEmbeddedPostgres({ directory, log })).rejects.toThrow(/in use by another asset-mirror/);
  expect(await ask('SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

test('a killed server is restarted at the same port with its data', async () => {
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
  expect(await until('it to be back', () => ask('SELECT n FROM kept').catch(() => false))).toEqual([{ n: 7 }]);
});

test.each(['on a new directory', 'again'])(
  'if two processes start %s at the same time, one gets the directory and the other an error',
  { tags: 'slow' },
  async (which) => {
    await server.stop();
    if (which !== 'again') {
      directory = await mkdtemp(join(tmpdir(), 'asset-mirror-embedded-'));
      directories.push(directory);
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

test('a start waits for a server that is just ending', async () => {
  const ending = server.stop();
  server = (await until('its lease', () =>
    startEmbeddedPostgres({ directory, log }).catch((error) => {
      if (!/in use by another/.test(error.message)) throw error;
    }),
  )) as EmbeddedPostgres;
  await ending;
  expect(await until('it to answer', () => ask('SELECT 1 AS one').catch(() => false))).toEqual([{ one: 1 }]);
});

test.skipIf(process.platform !== 'linux')('a server that ends without answering does not prevent a start', async () => {
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

test.skipIf(process.platform !== 'linux')(
  'a server that cannot start reports the reason',
  { tags: 'slow' },
  async () => {
    const settings = join(directory, 'postgres', 'postgresql.conf');
    const before = await readFile(settings, 'utf8');
    const [pid, , , port] = (await readFile(join(directory, 'postgres', 'postmaster.pid'), 'utf8')).split('\n');
    process.kill(Number(pid), 'SIGSTOP');
    const ending = server.stop();
    await writeFile(settings, 'no such setting');
    const next = startEmbeddedPostgres({ directory, log });
    const rejected = expect(next).rejects.toThrow(/start PostgreSQL in .*: .*postgresql.conf/);
    await until('a question that nobody reads', () => unread(Number(port)));
    process.kill(Number(pid), 'SIGCONT');
    await rejected;
    await ending;
    await writeFile(settings, before);
    server = await startEmbeddedPostgres({ directory, log });
  },
);

test('a lost database is created again, and is empty', { tags: 'slow' }, async () => {
  await ask('CREATE TABLE lost (id int)');
  const { password } = new URL(server.url);
  await server.stop();
  await rm(join(directory, 'postgres'), { recursive: true });
  server = await startEmbeddedPostgres({ directory, log });
  expect(await ask("SELECT to_regclass('lost') AS it")).toEqual([{ it: null }]);
  // The old files may return with their disk: the same password opens them.
  expect(new URL(server.url).password).toBe(password);
});

/** A process of its own that starts the server, and can be killed. */
function newOwner() {
  const code = `
    import { createLog } from './src/floor/log.ts';
    import { startEmbeddedPostgres } from './src/store/embedded/embedded.ts';
    const log = createLog({ level: 'silent', pretty: false });
    await startEmbeddedPostgres({ directory: ${JSON.stringify(directory)}, log });
    console.log('started');
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', code], {
    env: { PATH: process.env.PATH, TZ: 'Europe/Berlin', LIBRARY_CLIENT_SECRET: 'svcs_secret' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  return {
    started: Promise.race([
      once(child.stdout, 'data'),
      ended.then(([exitCode]) => Promise.reject(new Error(`the owner ended with ${exitCode}`))),
    ]),
    async kill() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

async function startedOwner() {
  const owner = newOwner();
  await owner.started;
  return owner;
}

async function serverPid(): Promise<number> {
  return Number((await readFile(join(directory, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test('the server stops by itself when its owner is killed', async () => {
  await server.stop();
  const owner = await startedOwner();
  const pid = await serverPid();
  await owner.kill();
  await until('the server to stop', () => !isRunning(pid));
  // It was shut down in order, and left no pid file.
  expect(await readdir(join(directory, 'postgres'))).not.toContain('postmaster.pid');
  server = await startEmbeddedPostgres({ directory, log });
});

test('a start right after the owner was killed gets its own server with the data', { tags: 'slow' }, async () => {
  await ask('CREATE TABLE kept_through_kills (n int)');
  await ask('INSERT INTO kept_through_kills VALUES (7)');
  await server.stop();
  for (let round = 0; round < 3; round++) await (await startedOwner()).kill();
  const owner = await startedOwner();
  const orphan = await serverPid();
  await owner.kill();
  server = await startEmbeddedPostgres({ directory, log });
  expect(await serverPid()).not.toBe(orphan);
  expect(await ask('SELECT n FROM kept_through_kills')).toEqual([{ n: 7 }]);
});

test.skipIf(process.platform !== 'linux')('the environment of the server has none of our secrets', async () => {
  await server.stop();
  const owner = await startedOwner();
  const environment = await readFile(`/proc/${await serverPid()}/environ`, 'utf8');
  expect(environment).toContain('TZ=Europe/Berlin');
  expect(environment).not.toContain('LIBRARY_CLIENT_SECRET');
  await owner.kill();
  server = await startEmbeddedPostgres({ directory, log });
});

test('all files of the database are below its directory, even if only its owner may enter it', {
  tags: 'slow',
}, async () => {
  const parent = await mkdtemp(join(tmpdir(), 'asset-mirror-closed-'));
  directories.push(parent);
  const closed = join(parent, 'data');
  await mkdir(closed, { mode: 0o700 });
  const another = await startEmbeddedPostgres({ directory: closed, log });
  await another.stop();
  expect((await lstat(join(closed, 'postgres'))).isDirectory()).toBe(true);
  expect((await readdir(closed)).sort()).toEqual(['postgres', 'postgres-password']);
});

test('a start succeeds after a first start that was killed', { tags: 'slow' }, async () => {
  await server.stop();
  directory = await mkdtemp(join(tmpdir(), 'asset-mirror-embedded-'));
  directories.push(directory);
  const owner = newOwner();
  owner.started.catch(() => {});
  const drafts = async () => (await readdir(directory)).filter((name) => name.startsWith('postgres-new-'));
  // If this process was suspended meanwhile, the database is complete.
  await until('the database to be in the making', async () =>
    (await readdir(directory)).some((name) => name === 'postgres' || name.startsWith('postgres-new-')),
  );
  await owner.kill();
  server = await startEmbeddedPostgres({ directory, log });
  expect(await ask('SELECT 1 AS one')).toEqual([{ one: 1 }]);
  // The killed process's initdb may outlive it for a moment.
  await until('nothing to be left of it', async () => {
    await server.stop();
    server = await startEmbeddedPostgres({ directory, log });
    return (await drafts()).length === 0;
  });
});
