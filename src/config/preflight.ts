import { chmod, mkdir, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname } from 'node:path';
import { ConfigurationError } from '../floor/errors.ts';
import type { Log } from '../floor/log.ts';

/** Checks of the machine before asset-mirror starts. */

/** Makes DATA_DIR, or closes an existing one to other accounts, because it contains secrets. @throws ConfigurationError */
export async function makeDataDir(path: string, log: Log): Promise<void> {
  try {
    await make(path, 0o700);
  } catch (error) {
    throw new ConfigurationError([
      `DATA_DIR is ${path}, which cannot be made (${(error as NodeJS.ErrnoException).code}); expected a directory that this account may write to`,
    ]);
  }
  if ((await openToOthers(path)) !== 'ours') return;
  // Fails on a read-only disk and on file systems without modes.
  await chmod(path, 0o700).catch(() => {});
  if (await openToOthers(path)) return;
  log.warn({ event: 'data_dir.restricted', directory: path }, 'access of other accounts to DATA_DIR removed');
}

/**
 * Whether other accounts may enter a directory. `ours`: we own it, and it is not shared on purpose (sticky,
 * as /tmp), so we may change that. Windows has no such modes.
 */
export async function openToOthers(path: string): Promise<'ours' | 'theirs' | undefined> {
  const { mode, uid } = await stat(path);
  const self = process.getuid?.();
  if (self === undefined || (mode & 0o077) === 0) return undefined;
  return uid === self && (mode & 0o1000) === 0 ? 'ours' : 'theirs';
}

/** Makes a folder and its parents. `recursive` would never return where nothing can be made, such as below /proc. */
async function make(path: string, mode?: number): Promise<void> {
  try {
    await mkdir(path, mode);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST' && (await stat(path)).isDirectory()) return;
    if (code !== 'ENOENT' || dirname(path) === path) throw error;
    await make(dirname(path));
    await mkdir(path, mode).catch((again: NodeJS.ErrnoException) => {
      if (again.code !== 'EEXIST') throw again;
    });
  }
}

/** @throws ConfigurationError if both servers of the process were to listen on the same port */
export function refuseSamePort(port: number, metricsPort: number | undefined): void {
  if (port !== 0 && port === metricsPort) {
    throw new ConfigurationError([`METRICS_PORT is ${port}, the same as PORT; expected another port`]);
  }
}

/** @throws ConfigurationError if the process cannot listen on HOST and this port, the value of the variable `name` */
export async function probePort(name: string, host: string, port: number): Promise<void> {
  const server = createServer();
  const code = await new Promise<string | undefined>((resolve) => {
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
  if (code === 'EADDRINUSE') {
    throw new ConfigurationError([
      `${name} is ${port}, where another program listens already on ${host}; expected a free port`,
    ]);
  }
  if (code === 'EACCES') {
    throw new ConfigurationError([`${name} is ${port}, which this account may not use; expected one above 1023`]);
  }
  if (code !== undefined) {
    throw new ConfigurationError([
      `HOST is ${host}, where nothing can listen (${code}); expected an address of this machine`,
    ]);
  }
}
