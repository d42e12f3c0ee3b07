import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Role } from '../src/service.ts';
import { ended } from './proc.ts';
import { encryptionKey } from './records.ts';
import type { Servers } from './servers.ts';

// The benchmarks measure the installed form: the package, and the image.
await promisify(execFile)(process.execPath, [
  '--disable-warning=ExperimentalWarning',
  fileURLToPath(new URL('../build.ts', import.meta.url)),
]);
export const main = fileURLToPath(new URL('../dist/main.js', import.meta.url));

export type Mirror = ChildProcess & { pid: number };

const adminToken = 'the-token-of-the-operators';
/** Nothing listens here. */
const nowhere = 'http://127.0.0.1:9';

/** The environment variables of a mirror that uses these servers. */
export function environmentOf(servers: Servers): Record<string, string> {
  const { postgres, redis, certificates, s3 } = servers;
  const { library, origin = nowhere } = servers.source;
  return {
    PATH: process.env.PATH!,
    // NODE_OPTIONS and MALLOC_ARENA_MAX have the values of the image.
    NODE_OPTIONS: '--max-semi-space-size=4',
    MALLOC_ARENA_MAX: '2',
    DATABASE_URL: postgres.url,
    ...(certificates && { NODE_EXTRA_CA_CERTS: certificates.ca }),
    ...(redis && { REDIS_URL: redis.url }),
    ...(s3 && {
      STORAGE_URL: 's3://mirror/',
      S3_ENDPOINT: servers.s3Endpoint!,
      S3_REGION: s3.region,
      S3_FORCE_PATH_STYLE: 'true',
      AWS_ACCESS_KEY_ID: s3.accessKey,
      AWS_SECRET_ACCESS_KEY: s3.secretKey,
      ...(s3.name === 'null' && { S3_CHECKSUMS: 'crc32' }),
    }),
    DATA_DIR: servers.directory,
    PORT: String(servers.port),
    PUBLIC_URL: servers.url,
    ADMIN_TOKEN: adminToken,
    ENCRYPTION_KEYS: encryptionKey.toString('base64'),
    LIBRARY_API_URL: library?.apiUrl ?? origin,
    LIBRARY_APP_URL: library?.appUrl ?? origin,
    LIBRARY_CLIENT_ID: library?.clientId ?? 'bench',
    LIBRARY_CLIENT_SECRET: library?.clientSecret ?? 'bench',
    SYNC_INTERVAL: '1h',
    SYNC_INTERVAL_ACTIVE: '30d',
    LOG_PRETTY: 'false',
  };
}

/** Starts a mirror, and waits until it has. `profile` is a directory for V8's profile, written at its end. */
export async function startMirror(
  stack: AsyncDisposableStack,
  env: Record<string, string>,
  role: Role,
  profile: string | undefined,
): Promise<Mirror> {
  const prof = profile ? ['--cpu-prof', `--cpu-prof-dir=${profile}`] : [];
  const child = spawn(process.execPath, [...prof, main, 'start', '--role', role], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  stack.defer(() => ended(child));
  let started = false;
  for await (const text of createInterface(child.stdout)) {
    started = text.includes('"started"');
    if (started) break;
  }
  if (!started) throw new Error('the mirror did not start');
  child.stdout.resume();
  return child as Mirror;
}

/** @throws Error with the answer, if its status is no success */
// biome-ignore lint/suspicious/noExplicitAny: the answers of the operator API, read as they come
export async function askOperatorApi(url: string, path: string, body?: object): Promise<any> {
  const response = await fetch(`${url}/api${path}`, {
    ...(body && { method: 'POST', body: JSON.stringify(body) }),
    headers: {
      authorization: `Bearer ${adminToken}`,
      accept: 'application/json',
      ...(body && { 'content-type': 'application/json' }),
    },
  });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response.json();
}
