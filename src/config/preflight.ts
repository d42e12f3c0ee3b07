import { mkdir, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname } from 'node:path';
import { ConfigurationError } from '../errors.ts';

/** What a start needs of the machine, looked at before anything is begun. */

/** Makes DATA_DIR, which holds secrets, for its owner only. @throws ConfigurationError */
export async function makeDataDir(path: string): Promise<void> {
  try {
    await make(path, 0o700);
  } catch (error) {
    throw new ConfigurationError([
      `DATA_DIR is ${path}, which cannot be made (${(error as NodeJS.ErrnoException).code}); expected a directory that this account may write to`,
    ]);
  }
}

/** Not `recursive`: where nothing can be made, such as below /proc, that never returns. */
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

/** @throws ConfigurationError when HOST and the port that the variable `name` says are not to be had */
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
