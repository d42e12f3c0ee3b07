import { execFile } from 'node:child_process';
import { chmod, chown, mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { platform } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { postgresPasswordIn } from '../../config/secrets.ts';
import { exists } from '../../floor/files.ts';
import type { Log } from '../../floor/log.ts';
import { binariesPackage } from './binaries.ts';
import { copyPrograms } from './copies.ts';

const run = promisify(execFile);

/** Clusters are created in such a directory and then moved into place as a whole. */
const draftPrefix = 'postgres-new-';

type Account = { uid?: number; gid?: number };

/** The files of an embedded PostgreSQL, and how to run its programs. */
export interface Cluster {
  bin: string;
  data: string;
  /** `data` as seen by the server, whose working directory it is. */
  path: string;
  /** The account that programs run as; empty: our own. */
  account: Account;
  password: string;
  log: string;
}

export const clusterIn = (directory: string) => join(directory, 'postgres');

/** Whether there is a cluster below `directory`. */
export const clusterExists = (directory: string) => exists(join(clusterIn(directory), 'PG_VERSION'));

/** The environment for PostgreSQL's programs, without our secrets. */
export function minimalEnvironment(): NodeJS.ProcessEnv {
  const names = ['PATH', 'LANG', 'TZ', 'TMPDIR'];
  // biome-ignore lint/style/noProcessEnv: not our settings, but what any program needs
  const environment = process.env;
  return Object.fromEntries(names.flatMap((name) => (environment[name] ? [[name, environment[name]]] : [])));
}

/** Opens the cluster below `directory`, or creates one. @throws Error */
export async function openCluster(directory: string, log: Log): Promise<Cluster> {
  const data = clusterIn(directory);
  const isThere = await clusterExists(directory);
  const passwordFile = join(directory, 'postgres-password');
  if (isThere && !(await exists(passwordFile))) {
    throw new Error(`${passwordFile} is missing, and the database in ${data} cannot be opened without it; restore it`);
  }
  const account = process.getuid?.() === 0 ? await postgresAccount() : {};
  const bin = await usableBinaries(account);
  const password = await postgresPasswordIn(directory);
  if (!isThere) {
    await makeCluster(directory, { bin, account, password: password.value });
    if (!password.made) {
      log.warn(
        { event: 'embedded_postgres.recreated', directory: data },
        'no database found, an empty one created; if there was one, `asset-mirror rebuild` restores it from the bucket',
      );
    } else log.info({ event: 'embedded_postgres.created', directory: data }, 'PostgreSQL database created');
  }
  const path = pathFor(account, data);
  return { bin, data, path, account, password: password.value, log: join(data, 'server.log') };
}

/** Removes unfinished clusters of killed processes. Only for the owner of the cluster. */
export async function removeDrafts(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    // A killed process's initdb may still be writing; the next start removes the rest.
    if (name.startsWith(draftPrefix)) await rm(join(directory, name), { recursive: true, force: true }).catch(() => {});
  }
}

/**
 * A path of `directory` for a program that runs in it. The account `postgres` cannot enter all parents (DATA_DIR is 0700),
 * but Linux lets a process use its own working directory.
 */
function pathFor(account: Account, directory: string): string {
  return account.uid === undefined ? directory : '/proc/self/cwd';
}

/** If two processes create a cluster at the same time, both use the one that is moved into place first. */
async function makeCluster(
  directory: string,
  { bin, account, password }: Pick<Cluster, 'bin' | 'account' | 'password'>,
): Promise<void> {
  const data = clusterIn(directory);
  const draft = await mkdtemp(join(directory, draftPrefix));
  try {
    const made = join(draft, 'data');
    const passwordFile = join(draft, 'password');
    await mkdir(made, { mode: 0o700 });
    await writeFile(passwordFile, password, { mode: 0o600 });
    if (account.uid !== undefined) {
      for (const path of [draft, made, passwordFile]) await chown(path, account.uid, account.gid!);
    }
    const args = [
      ...['-D', pathFor(account, made), '-U', 'postgres', '-A', 'scram-sha-256', '--pwfile=../password'],
      // Knows upper and lower case of every script, and sorts the same on every machine.
      ...['-E', 'UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'],
    ];
    await run(join(bin, 'initdb'), args, { ...account, cwd: made, env: minimalEnvironment() });
    await rename(made, data);
  } catch (cause) {
    if (!(await clusterExists(directory))) throw new Error(`cannot create a PostgreSQL database in ${data}`, { cause });
  } finally {
    await rm(draft, { recursive: true, force: true }).catch(() => {});
  }
}

/** The directory of the programs: a copy if the account `postgres` cannot run those of the package. */
async function usableBinaries(account: Account): Promise<string> {
  const bin = dirname(await packagedBinaries());
  if (account.uid === undefined || (await runs(bin, account))) return bin;
  return copyPrograms(join(bin, '../..'));
}

const runs = (bin: string, account: Account) =>
  run(join(bin, 'postgres'), ['--version'], { ...account, cwd: '/', env: minimalEnvironment() }).then(
    () => true,
    () => false,
  );

async function packagedBinaries(): Promise<string> {
  const found = await import(binariesPackage).catch((cause) => {
    throw new Error(
      `this installation includes no PostgreSQL; install the npm package ${binariesPackage}, or name a database (DATABASE_URL, or \`library --database\`)`,
      { cause },
    );
  });
  for (const path of [found.postgres, found.initdb]) {
    const { mode } = await stat(path);
    if ((mode & 0o555) !== 0o555) await chmod(path, mode | 0o555);
  }
  return found.postgres as string;
}

/** PostgreSQL refuses to run as root. */
async function postgresAccount(): Promise<{ uid: number; gid: number }> {
  if (platform() !== 'linux') {
    throw new Error(
      'the embedded PostgreSQL does not run as root; start asset-mirror as another user, or set DATABASE_URL',
    );
  }
  const id = async (flag: string) => Number((await run('id', [flag, 'postgres'])).stdout);
  try {
    return { uid: await id('-u'), gid: await id('-g') };
  } catch {
    await run('useradd', ['--system', '--user-group', '--no-create-home', '--shell', '/usr/sbin/nologin', 'postgres']);
    return { uid: await id('-u'), gid: await id('-g') };
  }
}
