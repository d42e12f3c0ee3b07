import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { newBrowser } from '../support/browser.ts';
import type { Programs } from './programs.ts';

export const main = join(import.meta.dirname, '../../src/main.ts');
const adminToken = 'the-token-of-the-operators';
export const clientId = 'the-fault-suite';
export const clientSecret = 'svcs_of_the_fault_suite';

interface Surroundings {
  databaseUrl: string;
  redisPort: number;
  webPort: number;
  publicUrl: string;
  libraryUrl: string;
  /** The environment variables of the store. */
  storage: Record<string, string>;
}

/** Starts a web process and two workers. */
export async function startMirror({ directory, program }: Programs, at: Surroundings): Promise<void> {
  const environment = {
    ...at.storage,
    DATABASE_URL: at.databaseUrl,
    REDIS_URL: `redis://127.0.0.1:${at.redisPort}`,
    DATA_DIR: directory,
    PUBLIC_URL: at.publicUrl,
    PORT: String(at.webPort),
    ENCRYPTION_KEYS: randomBytes(32).toString('base64'),
    ADMIN_TOKEN: adminToken,
    LIBRARY_API_URL: at.libraryUrl,
    LIBRARY_APP_URL: at.libraryUrl,
    LIBRARY_CLIENT_ID: clientId,
    LIBRARY_CLIENT_SECRET: clientSecret,
    SYNC_INTERVAL: '5s',
    SCRUB_CYCLE: '2m',
    PROCESSING_POLL: '1s',
    TRANSCRIPT_DELAY: '0s',
    TRANSFER_STALL_TIMEOUT: '2s',
    SHUTDOWN_GRACE: '5s',
    CONNECTION_CONCURRENCY: '6',
    // So that large files take long enough to meet faults.
    BANDWIDTH_LIMIT: '24MiB/s',
    LOG_LEVEL: 'debug',
    LOG_PRETTY: 'false',
  };
  for (const [name, role] of [
    ['web', 'web'],
    ['worker-1', 'worker'],
    ['worker-2', 'worker'],
  ] as const) {
    await program({
      name,
      command: [process.execPath, main, 'start', '--role', role],
      env: environment,
      isReady: (output) => output.includes('"started"'),
    }).start();
  }
}

/** The operator API of the mirror. */
export function createApi(publicUrl: string) {
  async function api(method: string, path: string, body?: unknown) {
    const response = await fetch(`${publicUrl}/api${path}`, {
      method,
      headers: { authorization: `Bearer ${adminToken}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(20_000),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    // biome-ignore lint/suspicious/noExplicitAny: an answer, read as it comes
    return (await response.json()) as any;
  }

  return {
    api,

    /** Goes through the connect flow as a user, for as long as it takes. */
    async connect(user: string): Promise<void> {
      const until = Date.now() + 120_000;
      for (;;) {
        try {
          const { url } = await api('POST', '/connect-links', {});
          const browser = newBrowser();
          const consent = (await browser.get(url)).headers.get('location');
          const page = await browser.visit(`${consent}&login_hint=${user}`);
          if (page.status !== 200) throw new Error(`connecting ${user}: ${page.status}`);
          return;
        } catch (error) {
          if (Date.now() > until) throw error;
          await sleep(300);
        }
      }
    },
  };
}
