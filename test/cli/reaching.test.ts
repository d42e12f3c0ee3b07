import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { freePort } from '../support/ports.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { spawned } from '../support/spawned.ts';

let scene: Scene;
let dataDir: string;
beforeAll(async () => {
  scene = await newScene({ role: 'web' });
  dataDir = await mkdtemp(join(tmpdir(), 'asset-mirror-token-'));
  await writeFile(join(dataDir, 'admin-token'), scene.ground.environment.ADMIN_TOKEN!);
});
afterAll(async () => {
  await scene?.close();
  await rm(dataDir, { recursive: true, force: true });
});

/** Runs a verb without a token in its environment: only DATA_DIR has one. */
function run(url: string, ...args: string[]) {
  const env = { ...spawned, ASSET_MIRROR_URL: url, DATA_DIR: dataDir, XDG_CONFIG_HOME: dataDir };
  return new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
    execFile(process.execPath, ['src/main.ts', ...args], { env }, (error, stdout, stderr) =>
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
  });
}

async function listening(listener: RequestListener): Promise<number> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

test('the admin token in DATA_DIR is sent to an asset-mirror on this machine, and to no other host', {
  tags: 'slow',
}, async () => {
  expect((await run(scene.ground.publicUrl, 'connections')).stdout).toContain('ada@');
  const tokens: unknown[] = [];
  const port = await listening((request, response) => {
    tokens.push(request.headers.authorization);
    response.writeHead(401, { 'content-type': 'application/problem+json' }).end('{"detail":"no"}');
  });
  // Another address of the loopback stands for another machine.
  const { code, stderr } = await run(`http://127.0.0.2:${port}`, 'connections');
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining('needs a token') });
  expect(tokens).toEqual([undefined]);
});

test('login says that there is no OpenID provider, and what to do instead', async () => {
  const { code, stderr } = await run(scene.ground.publicUrl, 'login');
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr: expect.stringMatching(/no OpenID provider.*ASSET_MIRROR_TOKEN/),
  });
});

test('the reason is named if asset-mirror cannot be reached', { tags: 'slow' }, async () => {
  const nobody = await run(`http://127.0.0.1:${await freePort()}`, 'status');
  expect(nobody).toMatchObject({ code: 3, stderr: expect.stringMatching(/No asset-mirror answers at .*ECONNREFUSED/) });
  const unknown = await run('http://no-such-host.invalid', 'status');
  expect(unknown).toMatchObject({
    code: 3,
    stderr: expect.stringMatching(/no-such-host\.invalid.*cannot be resolved/),
  });
});

test('an answer that ends too early counts as not reachable', async () => {
  const port = await listening((request, response) => {
    if (request.url!.startsWith('/api/plan')) response.writeHead(200).write('{"progress":null}\n');
    else response.writeHead(200).write('{"connections":[');
    setImmediate(() => response.destroy());
  });
  for (const verb of ['plan', 'connections']) {
    const { code, stderr } = await run(`http://127.0.0.1:${port}`, verb);
    expect({ code, stderr }).toEqual({
      code: 3,
      stderr: expect.stringContaining('closed the connection before the answer'),
    });
  }
});
