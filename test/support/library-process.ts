import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { KeptLibrary } from '../../src/library/index.ts';
import { adminOf, type Library, REDIRECT_URI } from './library.ts';

const MAIN = join(import.meta.dirname, '../../src/main.ts');

export type LibraryProcess = {
  library: Library;
  /** The secret as it was printed; null: the library does not show it again. */
  clientSecret: string | null;
  admin: ReturnType<typeof adminOf>;
  /** Ends it like a power failure. */
  kill(): Promise<void>;
  stop(): Promise<void>;
};

/** `asset-mirror library`, with its output when it is ready. */
export async function spawnLibrary(databaseUrl: string, ...options: string[]): Promise<LibraryProcess> {
  const words = ['library', '--json', '--database', databaseUrl, '--port', '0', '--admin-port', '0'];
  const child = spawn(
    process.execPath,
    [MAIN, ...words, '--redirect-uri', REDIRECT_URI, '--auto-consent', ...options],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let complaints = '';
  child.stderr.on('data', (chunk) => {
    complaints += chunk;
  });
  const exit = once(child, 'exit');
  const line = await Promise.race([
    once(createInterface(child.stdout), 'line').then(([line]) => line as string),
    exit.then(([code]) => Promise.reject(new Error(`the library ended with ${code}: ${complaints}`))),
  ]);
  const printed = JSON.parse(line) as KeptLibrary;
  return {
    library: { ...printed, clientSecret: printed.clientSecret ?? '', close: () => end(child, exit, 'SIGTERM') },
    clientSecret: printed.clientSecret,
    admin: adminOf(printed.adminUrl!),
    kill: () => end(child, exit, 'SIGKILL'),
    stop: () => end(child, exit, 'SIGTERM'),
  };
}

async function end(child: ChildProcess, exit: Promise<unknown>, signal: NodeJS.Signals): Promise<void> {
  child.kill(signal);
  await exit;
}
