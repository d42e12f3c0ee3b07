// @module-tag slow
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer, type Server } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { freePort } from './support/ports.ts';
import { spawned } from './support/spawned.ts';
import { until } from './support/until.ts';

test('a start that cannot use its port, host or DATA_DIR names the setting', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const { port } = taken.address() as AddressInfo;
  const attempt = async (settings: Record<string, string>, verb = 'start') => {
    const child = spawn(process.execPath, ['src/main.ts', verb], {
      env: {
        ...spawned,
        DATA_DIR: '/proc/nothing/can/be/made/here',
        PORT: String(await freePort()),
        LIBRARY_API_URL: 'http://127.0.0.1:9',
        LIBRARY_APP_URL: 'http://127.0.0.1:9',
        LIBRARY_CLIENT_ID: 'id',
        LIBRARY_CLIENT_SECRET: 'svcs_secret',
        ...settings,
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let output = '';
    child.stderr.on('data', (chunk) => (output += chunk));
    const [code] = await once(child, 'close');
    return { code, output };
  };
  try {
    expect(await attempt({ PORT: String(port) })).toEqual({
      code: 2,
      output: expect.stringContaining(`PORT is ${port}, where another program listens already`),
    });
    expect(await attempt({ HOST: '203.0.113.1' })).toEqual({
      code: 2,
      output: expect.stringContaining('HOST is 203.0.113.1, where nothing can listen'),
    });
    expect(await attempt({})).toEqual({
      code: 2,
      output: expect.stringContaining('DATA_DIR is /proc/nothing/can/be/made/here, which cannot be made (ENOENT)'),
    });
    const file = { DATA_DIR: resolve('package.json') };
    const [start, library, demo] = await Promise.all([attempt(file), attempt({}, 'library'), attempt({}, 'demo')]);
    expect(start).toEqual({ code: 2, output: expect.stringContaining('package.json, which cannot be made (EEXIST)') });
    for (const { code, output } of [library, demo]) {
      expect(code).toBe(2);
      expect(output).toMatch(/DATA_DIR is \/proc\/nothing\/can\/be\/made\/here\/(library|demo), which cannot be made/);
    }
  } finally {
    taken.close();
  }
});

test.each(['start', 'demo', '--help'])(
  '`%s` keeps no compiled code in the shared temporary directory',
  async (verb) => {
    const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-tmp-'));
    try {
      const child = spawn(process.execPath, ['src/main.ts', verb], {
        env: { ...spawned, TMPDIR: directory, DATA_DIR: '/proc/nothing/can/be/made/here' },
        stdio: 'ignore',
      });
      const [code] = await once(child, 'close');
      expect(code).toBe(verb === '--help' ? 0 : 2);
      expect(await readdir(directory)).toEqual([]);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
);

describe('an .env file in the working directory', () => {
  let directory: string;
  let asked: string[];
  let server: Server;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'asset-mirror-cwd-'));
    asked = [];
    server = createHttpServer((request, response) => {
      asked.push(request.url!);
      response.end('{}');
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    await writeFile(join(directory, '.env'), `ASSET_MIRROR_URL=http://127.0.0.1:${port}\nLOG_LEVEL=none\n`);
  });
  afterEach(async () => {
    server.close();
    await rm(directory, { recursive: true, force: true });
  });
  async function run(...args: string[]) {
    const child = spawn(process.execPath, [resolve('src/main.ts'), ...args], {
      cwd: directory,
      env: {
        ...spawned,
        ADMIN_TOKEN: 'the-exported-token-of-the-operator',
        PORT: String(await freePort()),
        DATA_DIR: '/proc/nothing/can/be/made/here',
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    child.stderr.on('data', (chunk) => (said += chunk));
    const [code] = await once(child, 'close');
    return { code, said };
  }

  test.each(['status', 'keys rotate'])(
    'an .env file in the working directory is not used for the address in `%s`',
    async (verb) => {
      expect(await run(...verb.split(' '))).toEqual({ code: 3, said: expect.stringContaining('127.0.0.1') });
      expect(asked).toEqual([]);
    },
  );

  test('an .env file in the working directory is not read by `demo`', async () => {
    expect(await run('demo')).toEqual({ code: 2, said: expect.stringContaining('DATA_DIR') });
  });

  test.each(['start', 'doctor', 'rebuild'])('an .env file in the working directory is read by `%s`', async (verb) => {
    expect(await run(verb)).toEqual({ code: 2, said: expect.stringContaining('LOG_LEVEL is "none"') });
  });
});

/** asset-mirror with its embedded PostgreSQL. */
async function embedded() {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-start-'));
  const child = spawn(process.execPath, ['src/main.ts', 'start'], {
    env: {
      ...spawned,
      DATA_DIR: directory,
      PORT: String(await freePort()),
      LIBRARY_API_URL: 'http://127.0.0.1:9',
      LIBRARY_APP_URL: 'http://127.0.0.1:9',
      LIBRARY_CLIENT_ID: 'id',
      LIBRARY_CLIENT_SECRET: 'svcs_secret',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
  // After all its output was read.
  const ended = new Promise<number | null>((resolve) => child.once('close', (code) => resolve(code)));
  return {
    child,
    ended,
    output: () => output,
    there: (path: string) =>
      access(join(directory, path)).then(
        () => true,
        () => false,
      ),
    clear: () => rm(directory, { recursive: true, force: true }),
  };
}

test('a signal while PostgreSQL is being set up ends the start, exits with 0 and leaves nothing running', async () => {
  const service = await embedded();
  try {
    await until('the cluster to be made', () => service.there('postgres/PG_VERSION'));
    service.child.kill('SIGTERM');
    expect(await service.ended, service.output()).toBe(0);
    expect(service.output()).toContain('stopped while starting');
    expect(service.output()).not.toContain('"started"');
    expect(await service.there('postgres/postmaster.pid')).toBe(false);
  } finally {
    await service.clear();
  }
});

test('a second signal leaves no PostgreSQL behind', async () => {
  const service = await embedded();
  try {
    await until('the start', () => service.output().includes('"started"'));
    // Two of one kind at the same moment would be one; the order of two kinds is not defined.
    service.child.kill('SIGINT');
    service.child.kill('SIGTERM');
    expect([130, 143], service.output()).toContain(await service.ended);
    await until('PostgreSQL to end', async () => !(await service.there('postgres/postmaster.pid')));
  } finally {
    await service.clear();
  }
});
