import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import type { Environment } from './environment.ts';

/** The sessions of `asset-mirror login`, by the address of the service, in a file that only this user can read. */

const credentials = z.record(z.string(), z.object({ token: z.string() }));

const fileIn = (environment: Environment) =>
  join(environment.XDG_CONFIG_HOME || join(homedir(), '.config'), 'asset-mirror', 'credentials.json');

async function readAll(file: string): Promise<z.infer<typeof credentials>> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '{}';
    throw error;
  });
  return credentials.parse(JSON.parse(text));
}

/** The token of the session at this address. Undefined: nobody has logged in. */
export async function savedToken(url: string, environment: Environment): Promise<string | undefined> {
  const all = await readAll(fileIn(environment)).catch(() => undefined);
  return all?.[url]?.token;
}

/** Saves the token of the session at this address; undefined forgets it. Returns the path of the file. */
export async function saveToken(url: string, token: string | undefined, environment: Environment): Promise<string> {
  const file = fileIn(environment);
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const draft = `${file}.${process.pid}`;
  const all = await readAll(file);
  if (token === undefined) delete all[url];
  else all[url] = { token };
  await writeFile(draft, `${JSON.stringify(all, null, 2)}\n`, { mode: 0o600 });
  await rename(draft, file);
  return file;
}
