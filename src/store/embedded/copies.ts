import { randomBytes } from 'node:crypto';
import { chmod, constants, cp, mkdir, readdir, readFile, readlink, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { exists } from '../../floor/files.ts';

/**
 * Copies the programs of a package to where every account can run them, once per version, and removes copies of other
 * versions that no process runs from. Returns the directory of the programs. Linux only.
 */
export async function copyPrograms(installation: string, home = '/var/lib/asset-mirror'): Promise<string> {
  const { version } = JSON.parse(await readFile(join(installation, 'package.json'), 'utf8'));
  const name = `postgresql-${version}`;
  const copy = join(home, name);
  if (!(await exists(copy))) {
    await mkdir(home, { recursive: true });
    await chmod(home, 0o755);
    const draft = `${copy}.${randomBytes(6).toString('hex')}`;
    await cp(join(installation, 'native'), draft, { recursive: true, verbatimSymlinks: true });
    await openToAll(draft);
    await rename(draft, copy).catch(async (error) => {
      await rm(draft, { recursive: true });
      if (!(await exists(copy))) throw error;
    });
  }
  const running = await runningPrograms();
  for (const other of await readdir(home)) {
    const path = join(home, other);
    // Drafts of this version stay, too: another process may be writing them.
    if (!other.startsWith('postgresql-') || other === name || other.startsWith(`${name}.`)) continue;
    if (!running.some((program) => program.startsWith(`${path}/`))) await rm(path, { recursive: true, force: true });
  }
  return join(copy, 'bin');
}

/** Lets every account read and run what is in a directory, and only ours change it. The umask of `npm ci` may have closed it. */
async function openToAll(directory: string): Promise<void> {
  await chmod(directory, 0o755);
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
    if (entry.isSymbolicLink()) continue;
    const path = join(entry.parentPath, entry.name);
    await chmod(path, entry.isDirectory() || (await exists(path, constants.X_OK)) ? 0o755 : 0o644);
  }
}

/** The executable files of all processes that we may inspect; as root, of all. */
async function runningPrograms(): Promise<string[]> {
  const processes = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  return Promise.all(processes.map((pid) => readlink(`/proc/${pid}/exe`).catch(() => '')));
}
