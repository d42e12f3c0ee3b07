// @module-tag slow
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { access, chmod, chown, mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer, type Server } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { Writable } from 'node:stream';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeDataDir } from '../src/config/preflight.ts';
import { createLog } from '../src/floor/log.ts';
import { bytesOf, chunksOf } from '../src/library/index.ts';
import { type Admin, type Library, startTestLibrary } from './support/library.ts';
import { contentOf, type Ground, grounds, keysOf, newGround, spawnMirror } from './support/mirror.ts';
import { freePort } from './support/ports.ts';
import { spawned } from './support/spawned.ts';
import { until } from './support/until.ts';

describe.each(grounds())('a process that ends ($name)', { timeout: 300_000 }, (kind) => {
  let library: Library;
  let admin: Admin;
  let ground: Ground;
  let mirrors: Awaited<ReturnType<typeof spawnMirror>>[];
  const size = 3_000_000;

  beforeEach(async () => {
    const port = await freePort();
    ground = await newGround({
      port,
      redis: kind.redis,
      s3: kind.s3,
      environment: { TRANSFER_STALL_TIMEOUT: '30s', SHUTDOWN_GRACE: '4s' },
    });
    ({ library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] }));
    await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
    mirrors = [];
  });
  afterEach(async () => {
    for (const mirror of mirrors) await mirror.kill('SIGKILL');
    await library?.close();
    await ground?.clear();
  });
  const start = async (role?: 'web' | 'worker' | 'all') => {
    const mirror = await spawnMirror(ground, library, role);
    mirrors.push(mirror);
    return mirror;
  };
  const upload = async (seed: string) =>
    (
      await admin.addAsset({
        companyId: 'acme',
        name: 'big.bin',
        mimeType: 'application/octet-stream',
        assetType: 'documents',
        uploadDate: Date.UTC(2024, 0, 1),
        thumbnail: false,
        content: { seed, size },
      })
    ).id;
  const hold = (assetId: string) => admin.addFault({ endpoint: 'media', assetId, stallAfter: 1_000_000 });
  const whole = async (id: string, seed: string) =>
    expect(await contentOf(ground.storage, `acme/_/${id}/big.bin`)).toEqual(bytesOf(seed, 0, size));

  test('SIGTERM hands work back without spending an attempt, within the grace, and the process exits with 0', async () => {
    const id = await upload('term');
    await hold(id);
    const first = await start();
    await first.connect();
    await first.assetIn(id, 'transferring');
    const started = Date.now();
    expect(await first.kill('SIGTERM'), first.output()).toBe(0);
    // Without an abort of the transfer, the stop would take 30 s.
    expect(Date.now() - started).toBeLessThan(20_000);
    expect((await keysOf(ground.storage)).filter((key) => key.includes(id))).toEqual([]);

    await admin.clearFaults();
    const second = await start();
    expect(await second.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
    await whole(id, 'term');
  });

  test('a second signal ends the process at once', async () => {
    const id = await upload('twice');
    await hold(id);
    // The first signal alone does not end it during this test.
    ground.environment.SHUTDOWN_GRACE = '5m';
    const mirror = await start();
    await mirror.connect();
    await mirror.assetIn(id, 'transferring');
    mirror.child.kill('SIGTERM');
    await until('the stop to begin', async () => (await fetch(`${ground.publicUrl}/readyz`)).status === 503);
    // Without the second signal it would end with 0.
    expect(await mirror.kill('SIGTERM')).toBe(143);
  });

  test('a worker that is killed during a transfer loses no attempt, and another one continues', async () => {
    const ids = await Promise.all(['kill 1', 'kill 2', 'kill 3'].map(upload));
    for (const id of ids) await hold(id);
    const web = await start('web');
    const victim = await start('worker');
    await web.connect();
    for (const id of ids) await web.assetIn(id, 'transferring');
    await victim.kill('SIGKILL');
    await admin.clearFaults();
    await start('worker');
    for (const [index, id] of ids.entries()) {
      expect(await web.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
      await whole(id, `kill ${index + 1}`);
    }
    const keys = await keysOf(ground.storage);
    expect(keys).toHaveLength(ids.length * 2);
  });

  test.runIf(kind.redis)(
    'a queue that does not answer does not keep a process from ending within its grace',
    async () => {
      const port = await freePort();
      const server = spawn('redis-server', ['--port', String(port), '--save', '', '--maxmemory-policy', 'noeviction'], {
        stdio: 'ignore',
      });
      try {
        ground.environment.REDIS_URL = `redis://127.0.0.1:${port}`;
        const mirror = await start();
        await mirror.connect();
        await mirror.quiet();
        server.kill('SIGSTOP');
        const started = Date.now();
        expect(await mirror.kill('SIGTERM'), mirror.output()).toBe(0);
        // A client that waits for an answer waits forever.
        expect(Date.now() - started).toBeLessThan(20_000);
      } finally {
        server.kill('SIGKILL');
      }
    },
  );

  test.runIf(kind.redis)('a queue that is emptied during work is filled again from the records', async () => {
    const ids = await Promise.all(Array.from({ length: 12 }, (_, n) => upload(`flush ${n}`)));
    await admin.addFault({ endpoint: 'media', latency: 500 });
    const mirror = await start();
    await mirror.connect();
    await until('the first transfer', async () => (await admin.requests({ endpoint: 'media' })).length > 0);
    const redis = new Redis(ground.environment.REDIS_URL!);
    await redis.flushdb();
    redis.disconnect();
    for (const [n, id] of ids.entries()) {
      expect(await mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
      await whole(id, `flush ${n}`);
    }
  });
});

describe.each(grounds())('a large file in a process that ends ($name)', { timeout: 300_000 }, (kind) => {
  test.each(['SIGKILL', 'SIGTERM'] as const)(
    '%s during the transfer of a large file costs at most the parts in flight',
    async (signal) => {
      const part = 16 * 2 ** 20;
      const size = 12 * part + 1000;
      const port = await freePort();
      const ground = await newGround({
        port,
        redis: kind.redis,
        s3: kind.s3,
        environment: { SHUTDOWN_GRACE: '3s', BANDWIDTH_LIMIT: '32MiB/s' },
      });
      const { library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] });
      const mirrors: Awaited<ReturnType<typeof spawnMirror>>[] = [];
      const database = new pg.Client({ connectionString: ground.environment.DATABASE_URL });
      await database.connect();
      try {
        await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
        const { id } = await admin.addAsset({
          companyId: 'acme',
          name: 'big.bin',
          mimeType: 'application/octet-stream',
          assetType: 'documents',
          uploadDate: Date.UTC(2024, 0, 1),
          thumbnail: false,
          content: { seed: 'large', size },
        });
        // The first request is none of a part. Eight parts are served.
        await admin.addFault({ endpoint: 'media', skip: 9, stallAfter: 1_000_000 });
        const first = await spawnMirror(ground, library);
        mirrors.push(first);
        await first.connect();
        const stored = async () =>
          Number((await database.query('SELECT count(*) FROM upload_parts WHERE asset_id = $1', [id])).rows[0].count);
        await until('half of it to be stored', async () => (await stored()) >= 6);
        await first.kill(signal);
        // The server may still be at what the process has sent.
        await until('its statements to end', async () => {
          const { rows } = await database.query(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'asset-mirror%'",
          );
          return rows.length === 0;
        });
        const kept = await stored();
        await admin.clearFaults();
        await admin.clearRequests();

        const second = await spawnMirror(ground, library);
        mirrors.push(second);
        expect(await second.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [], bytes: size });
        const again = await admin.requests({ assetId: id, endpoint: 'media' });
        // Each request is one part: those that were kept are not asked for again.
        expect(again).toHaveLength(13 - kept);
        expect(second.output()).toContain('transfer resumed');
        const hash = createHash('sha256');
        for await (const chunk of (await ground.storage.get(`acme/_/${id}/big.bin`))!) hash.update(chunk);
        const expected = createHash('sha256');
        for (const chunk of chunksOf('large', 0, size)) expected.update(chunk);
        expect(hash.digest('hex')).toBe(expected.digest('hex'));
        expect(await stored()).toBe(0);
        expect(await ground.leftovers()).toEqual([]);
      } finally {
        await database.end();
        for (const mirror of mirrors) await mirror.kill('SIGKILL');
        await library.close();
        await ground.clear();
      }
    },
  );
});

test('a Redis that never answers does not delay a stop', async () => {
  const port = await freePort();
  const ground = await newGround({
    port,
    environment: { REDIS_URL: `redis://127.0.0.1:${await freePort()}`, SHUTDOWN_GRACE: '40s' },
  });
  const { library } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] });
  const mirror = await spawnMirror(ground, library);
  try {
    const started = Date.now();
    expect(await mirror.kill('SIGTERM'), mirror.output()).toBe(0);
    expect(Date.now() - started).toBeLessThan(20_000);
  } finally {
    await mirror.kill('SIGKILL');
    await library.close();
    await ground.clear();
  }
});

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

describe('DATA_DIR', () => {
  let directory: string;
  let path: string;
  let lines: string[];
  const log = createLog({
    level: 'info',
    pretty: false,
    destination: new Writable({
      write(line, _, done) {
        lines.push(String(line));
        done();
      },
    }),
  });
  const modeOf = async (of: string) => (await stat(of)).mode & 0o7777;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'asset-mirror-data-'));
    path = join(directory, 'parent/data');
    lines = [];
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  test('a new DATA_DIR is accessible to its owner only', async () => {
    await makeDataDir(path, log);
    expect(await modeOf(path)).toBe(0o700);
    expect(await modeOf(dirname(path))).toBe(0o777 & ~process.umask());
    expect(lines).toEqual([]);
  });

  test('a DATA_DIR that other accounts may enter is closed to them, which is logged once', async () => {
    await mkdir(path, { recursive: true });
    await chmod(path, 0o755);
    await makeDataDir(path, log);
    await makeDataDir(path, log);
    expect(await modeOf(path)).toBe(0o700);
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ level: 'warn', directory: path }]);
  });

  test.runIf(process.getuid?.() === 0)(
    'a DATA_DIR of another account, or with a sticky bit, keeps its mode',
    async () => {
      await mkdir(path, { recursive: true });
      await chmod(path, 0o1777);
      await makeDataDir(path, log);
      expect(await modeOf(path)).toBe(0o1777);
      await chmod(path, 0o755);
      await chown(path, 12345, 12345);
      await makeDataDir(path, log);
      expect(await modeOf(path)).toBe(0o755);
      expect(lines).toEqual([]);
    },
  );
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
