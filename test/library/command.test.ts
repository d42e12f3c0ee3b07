import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { spawned } from '../support/spawned.ts';
import { until } from '../support/until.ts';

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'asset-mirror-library-'));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

/** Runs `asset-mirror library --json` with its defaults. */
async function start(...args: string[]) {
  const child = spawn(process.execPath, ['src/main.ts', 'library', '--json', '--port', '0', ...args], {
    env: { ...spawned, DATA_DIR: directory },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let complaints = '';
  child.stderr.on('data', (chunk) => (complaints += chunk));
  // After all its output was read.
  const ended = once(child, 'close');
  const [line] = (await Promise.race([
    once(createInterface(child.stdout), 'line'),
    ended.then(([code]) => Promise.reject(new Error(`it ended with ${code}: ${complaints}`))),
  ])) as [string];
  return {
    app: JSON.parse(line) as { apiUrl: string; clientId: string; clientSecret: string; users: object[] },
    complaints: () => complaints,
    async stop() {
      child.kill('SIGTERM');
      return (await ended)[0] as number | null;
    },
  };
}

const accepted = async ({ apiUrl, clientId, clientSecret }: Awaited<ReturnType<typeof start>>['app']) => {
  const answer = await fetch(`${apiUrl}/api/oauth/token`, {
    method: 'POST',
    body: new URLSearchParams({
      grant_type: 'refresh_token',
      refresh_token: 'svcr_none',
      client_id: clientId,
      client_secret: clientSecret,
    }),
  });
  // The app's credentials are right, the refresh token is not.
  return ((await answer.json()) as { error: string }).error === 'invalid_grant';
};

test('asset-mirror library prints all settings of an app, and the same ones after a restart', {
  tags: 'slow',
}, async () => {
  const first = await start();
  expect(await accepted(first.app)).toBe(true);
  expect(await first.stop()).toBe(0);
  const second = await start();
  const { apiUrl: _, ...kept } = first.app;
  expect(second.app).toMatchObject({ clientId: kept.clientId, clientSecret: kept.clientSecret, users: kept.users });
  expect(await accepted(second.app)).toBe(true);

  // A second library at the same time keeps its data in memory, and says so.
  const beside = await start();
  await until('the warning', () => beside.complaints().includes('this one keeps nothing when it ends'));
  expect(await accepted(beside.app)).toBe(true);
  expect(beside.app.clientSecret).not.toBe(kept.clientSecret);
  expect(await beside.stop()).toBe(0);
  expect(await second.stop()).toBe(0);
});

test('asset-mirror library names the port that is in use', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  await expect(start('--in-memory', '--port', `${port}`)).rejects.toThrow(
    `--port is ${port}, where another program listens already on 127.0.0.1; expected a free port`,
  );
  other.close();
});
