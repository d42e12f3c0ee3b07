import { execFile } from 'node:child_process';
import { chmod, chown, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { readConfig } from '../src/config/config.ts';
import { examine } from '../src/doctor.ts';
import { clockFinding, type Finding } from '../src/floor/finding.ts';
import { startBare } from './source/bare.ts';
import { newDatabase } from './support/database.ts';
import { freePort } from './support/ports.ts';
import { newScene, type Scene } from './support/scene.ts';
import { spawned } from './support/spawned.ts';

/** `doctor` in this process. */
async function findings(environment: Record<string, string>, signal = new AbortController().signal) {
  return Array.fromAsync(examine(readConfig(environment), signal));
}

/** The verb as a process. */
async function run(environment: Record<string, string>, ...args: string[]) {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-doctor-'));
  const main = join(import.meta.dirname, '../src/main.ts');
  return new Promise<{ code: number; out: string; err: string }>((resolve) => {
    const env = { ...spawned, ...environment };
    const child = execFile(process.execPath, [main, 'doctor', ...args], { env, cwd: directory }, (_, out, err) => {
      rm(directory, { recursive: true, force: true }).then(() => resolve({ code: child.exitCode ?? -1, out, err }));
    });
  });
}

const of = (all: Finding[], what: string) => all.find((finding) => finding.what === what);
const wrong = (all: Finding[]) =>
  all.filter(({ level }) => level === 'wrong').map(({ area, what }) => `${area}: ${what}`);

describe.each([
  { name: 'a directory, queues in PostgreSQL', redis: undefined, s3: undefined },
  ...(inject('s3') ? [{ name: inject('s3')!.name, redis: inject('redis'), s3: inject('s3') }] : []),
])('the doctor beside a running service ($name)', ({ redis, s3 }) => {
  let scene: Scene;
  let environment: Record<string, string>;
  let id: string;
  beforeAll(async () => {
    scene = await newScene({ redis, s3 });
    const { apiUrl, appUrl, clientId, clientSecret } = scene.library;
    environment = {
      ...scene.ground.environment,
      LIBRARY_API_URL: apiUrl,
      LIBRARY_APP_URL: appUrl,
      LIBRARY_CLIENT_ID: clientId,
      LIBRARY_CLIENT_SECRET: clientSecret!,
    };
    id = await scene.upload();
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
  });
  afterAll(() => scene?.close());
  afterEach(() => scene.admin.clearFaults());

  test('the doctor finds nothing wrong, and changes nothing', async () => {
    // The service writes inventories there, too.
    const keys = async () => (await Array.fromAsync(scene.storage.list(''))).map(({ key }) => key);
    const before = await keys();
    expect(before).toContain('_mirror/id');
    const all = await findings(environment);
    expect(wrong(all)).toEqual([]);
    for (const what of [
      'PostgreSQL',
      'schema',
      'objects',
      'mirror id',
      'API',
      'app',
      'token',
      '/me',
      'Referer',
      'Range',
    ]) {
      expect(of(all, what)).toMatchObject({ what, level: 'ok' });
    }
    expect(await keys()).toEqual(before);
  });

  test('the doctor prints at most 80 columns, no secrets, and exits with 0', { tags: 'slow' }, async () => {
    const { code, out, err } = await run(environment);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    for (const line of out.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
    expect(out).toMatch(/^configuration\n {2}✓ settings/);
    expect(out).toMatch(/No errors/);
    const secrets = [environment.LIBRARY_CLIENT_SECRET!, environment.ENCRYPTION_KEYS!, environment.ADMIN_TOKEN!];
    for (const secret of [...secrets, 'svca_', 'svcr_', 'signature=', '\u001b']) expect(out).not.toContain(secret);
  });

  test.skipIf(!inject('faketime'))(
    'the doctor measures response times with the monotonic clock',
    { tags: 'slow' },
    async () => {
      // The wall clock runs a hundred thousand times as fast.
      const clock = { LD_PRELOAD: inject('faketime')!, FAKETIME: '+0 x100000', FAKETIME_DONT_FAKE_MONOTONIC: '1' };
      const { out } = await run({ ...environment, ...clock }, '--json');
      for (const what of ['PostgreSQL', 'API']) {
        const { found } = of(JSON.parse(out).findings, what)!;
        expect(Number(/answers in (\d+) ms/.exec(found)![1])).toBeLessThan(20_000);
      }
    },
  );

  test('the doctor prints JSON with --json', { tags: 'slow' }, async () => {
    const { code, out } = await run(environment, '--json');
    expect(code).toBe(0);
    const { ok, findings } = JSON.parse(out);
    expect(ok).toBe(true);
    expect(findings[0]).toEqual({
      area: 'configuration',
      what: 'settings',
      found: 'are complete and fit together',
      level: 'ok',
    });
  });

  test('the doctor reports unknown asset types, and filters that mirror nothing', async () => {
    const types = { INCLUDE_ASSET_TYPES: 'vidoes', EXCLUDE_ASSET_TYPES: 'audio,pdf' };
    const all = await findings({ ...environment, ...types });
    expect(wrong(all)).toEqual(['configuration: INCLUDE_ASSET_TYPES']);
    expect(of(all, 'INCLUDE_ASSET_TYPES')).toMatchObject({
      found: 'vidoes: the library names no such type, so nothing is mirrored',
      remedy: expect.stringContaining('videos, selects, social'),
    });
    expect(of(all, 'EXCLUDE_ASSET_TYPES')).toMatchObject({
      found: 'pdf: the library names no such type',
      level: 'note',
    });
    expect(of(all, 'settings')).toBeUndefined();
  });

  test('the doctor leaves out findings that need the database if it is away', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-doctor-'));
    await mkdir(join(directory, 'mirror', '_mirror'), { recursive: true });
    await writeFile(join(directory, 'mirror', '_mirror', 'id'), 'another-mirror\n');
    const all = await findings({
      ...environment,
      STORAGE_URL: `file://${directory}/mirror`,
      DATABASE_URL: 'postgres://u:p@127.0.0.1:1/d',
    });
    expect(wrong(all)).toEqual(['database: PostgreSQL']);
    expect(of(all, 'mirror id')).toMatchObject({
      level: 'note',
      found: expect.stringContaining('could not be read to compare it'),
    });
    expect(of(all, 'token')).toMatchObject({
      found: expect.stringContaining('the connections are unknown'),
      remedy: expect.stringContaining('the database above'),
    });
    await rm(directory, { recursive: true });
  });

  test('the doctor says that the next start updates a schema of an earlier release', async () => {
    const database = await newDatabase({ empty: true });
    const all = await findings({ ...environment, DATABASE_URL: database.url });
    expect(of(all, 'schema')).toMatchObject({ level: 'ok', chosen: 'the next start updates it' });
    expect(of(all, 'token')).toMatchObject({
      level: 'note',
      found: expect.stringContaining('the connections are unknown'),
      remedy: 'start asset-mirror, which updates the schema, then run this again',
    });
    await database.drop();
  });

  test('the doctor refreshes an expired token, and the service continues with the new one', async () => {
    await scene.admin.expireTokens();
    expect(of(await findings(environment), 'token')).toMatchObject({ level: 'ok' });
    const another = await scene.upload();
    await scene.resync();
    await scene.mirror.assetIn(another, 'mirrored');
  });

  test.each([
    ['LIBRARY_APP_URL', 'http://localhost:1/elsewhere', ['library: sign-in', 'library: Referer'], /LIBRARY_APP_URL/],
    ['LIBRARY_CLIENT_SECRET', 'svcs_not_the_secret', ['library: app'], /LIBRARY_CLIENT_SECRET/],
    ['DATABASE_URL', 'postgres://nobody@127.0.0.1:1/none', ['database: PostgreSQL'], /DATABASE_URL/],
    ['REDIS_URL', 'redis://127.0.0.1:1', ['queue: Redis'], /REDIS_URL/],
  ])('the doctor reports a wrong %s', { tags: 'slow' }, async (name, value, expected, remedy) => {
    const { code, out } = await run({ ...environment, [name]: value }, '--json');
    const all: Finding[] = JSON.parse(out).findings;
    expect(code).toBe(1);
    expect(wrong(all)).toEqual(expected);
    expect(all.find(({ level }) => level === 'wrong')!.remedy).toMatch(remedy);
  });

  test('the doctor reports an address that is not that of the API', async () => {
    const elsewhere = await findings({ ...environment, LIBRARY_API_URL: `${environment.LIBRARY_API_URL}/api/v1` });
    expect(of(elsewhere, 'API')).toMatchObject({ level: 'wrong', remedy: expect.stringMatching(/without \/api\/v1/) });
    const nowhere = await findings({ ...environment, LIBRARY_API_URL: `http://127.0.0.1:${await freePort()}` });
    expect(of(nowhere, 'API')).toMatchObject({
      level: 'wrong',
      found: expect.stringMatching(/^nothing listens at 127\.0\.0\.1:\d+ \(ECONNREFUSED\)$/),
      remedy: 'start the server there, or correct LIBRARY_API_URL',
    });
  });

  test('the doctor reports a PUBLIC_URL that does not lead to the service', async () => {
    const { apiUrl } = scene.library;
    const { PUBLIC_URL } = environment;
    const publicUrl = async (change: Record<string, string>) =>
      of(await findings({ ...environment, ...change }), 'PUBLIC_URL');
    expect(await publicUrl({})).toMatchObject({ level: 'ok', found: `${PUBLIC_URL} leads to asset-mirror` });
    expect(await publicUrl({ PUBLIC_URL: apiUrl })).toMatchObject({
      level: 'note',
      found: expect.stringMatching(/^another program answers at http/),
    });
    const nowhere = `http://127.0.0.1:${await freePort()}`;
    expect(await publicUrl({ PUBLIC_URL: nowhere })).toMatchObject({
      level: 'note',
      found: expect.stringMatching(/^asset-mirror runs at .+, but .+ does not lead there \(/),
    });
  });

  test('the doctor says when inventories are not signed', async () => {
    const all = await findings({ ...environment, SIGNING_KEY: '' });
    expect(of(all, 'SIGNING_KEY')).toMatchObject({ level: 'note', found: expect.stringMatching(/not signed/) });
  });

  test('the doctor reports an encryption key that does not open the tokens', async () => {
    const all = await findings({ ...environment, ENCRYPTION_KEYS: Buffer.alloc(32).toString('base64') });
    expect(of(all, 'token')).toMatchObject({ level: 'wrong', remedy: expect.stringMatching(/ENCRYPTION_KEYS/) });
  });

  test('the doctor reports a bucket of another mirror', async () => {
    const other = s3 ? `${environment.STORAGE_URL}/other` : `${environment.STORAGE_URL}-other`;
    const all = await findings({ ...environment, STORAGE_URL: other });
    expect(of(all, 'mirror id')).toMatchObject({ level: 'wrong', remedy: expect.stringMatching(/STORAGE_URL/) });
  });

  test('the doctor reports new records with the bucket of an existing mirror as an error', {
    tags: 'slow',
  }, async () => {
    const database = await newDatabase();
    const { code, out } = await run({ ...environment, DATABASE_URL: database.url });
    await database.drop();
    expect(code).toBe(1);
    expect(out).toMatch(/✗ mirror id [^✓!✗]*→ asset-mirror rebuild/);
  });

  test('the doctor reports connections of which none is active as an error', { tags: 'slow' }, async () => {
    const { mirror, connectionId } = scene;
    await mirror.api('POST', `/connections/${connectionId}/pause`);
    const { code, out } = await run(environment);
    await mirror.api('POST', `/connections/${connectionId}/resume`);
    expect(code).toBe(1);
    expect(out.replace(/\s+/g, ' ')).toContain(
      `✗ token all connections are paused or disconnected: all work is stopped, so tokens and downloads were not tried → asset-mirror resume ${connectionId}, then run this again`,
    );
  });

  test('the doctor reports downloads that are refused, ignore ranges or need no Referer', {
    tags: 'slow',
  }, async () => {
    await scene.admin.setFaults({ endpoint: 'media', status: 403 });
    expect(of(await findings(environment), 'Referer')).toMatchObject({ level: 'wrong' });
    await scene.admin.setFaults({ endpoint: 'media', ignoreRange: true });
    expect(of(await findings(environment), 'Range')).toMatchObject({ level: 'note', found: 'ignored' });
    await scene.admin.setFaults({ endpoint: 'media', status: 200, body: 'everyone' });
    expect(of(await findings(environment), 'Referer')).toMatchObject({ level: 'note' });
    await scene.admin.setFaults({ endpoint: 'media', redirect: 2 });
    expect(of(await findings(environment), 'Range')).toMatchObject({ level: 'ok' });
    // doctor follows only links that downloads may follow.
    const inside = await startBare();
    const location = `http://localhost:${new URL(inside.url).port}/latest/credentials`;
    await scene.admin.setFaults({ endpoint: 'media', status: 302, headers: { location } });
    expect(of(await findings(environment), 'download')).toMatchObject({
      level: 'wrong',
      found: expect.stringContaining('add localhost to DOWNLOAD_ALLOW_PRIVATE'),
    });
    expect(inside.requests).toEqual([]);
    await inside.close();
  });
});

test('the doctor exits with 2 for an invalid configuration, and says what is expected', { tags: 'slow' }, async () => {
  const { code, err } = await run({ STORAGE_URL: 'ftp://nowhere' });
  expect(code).toBe(2);
  expect(err).toMatch(/STORAGE_URL is "ftp:\/\/nowhere"; expected s3:/);
});

test('the doctor creates nothing before the first start, and finds nothing wrong', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-doctor-'));
  const all = await findings({
    DATA_DIR: directory,
    LIBRARY_API_URL: `http://127.0.0.1:${await freePort()}`,
    LIBRARY_APP_URL: 'http://127.0.0.1:1',
    LIBRARY_CLIENT_ID: 'id',
    LIBRARY_CLIENT_SECRET: 'secret',
  });
  expect(wrong(all)).toEqual(['library: API']);
  expect(of(all, 'PostgreSQL')).toMatchObject({ found: 'none yet', chosen: 'the first start makes it' });
  expect(await readdir(directory)).toEqual([]);
  await rm(directory, { recursive: true });
});

test('the doctor reports a PUBLIC_URL with another port than PORT before the first start', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-doctor-'));
  const [port, other] = [await freePort(), await freePort()];
  const look = async (change: Record<string, string>) =>
    of(
      await findings({
        DATA_DIR: directory,
        PORT: String(port),
        LIBRARY_API_URL: `http://127.0.0.1:${await freePort()}`,
        LIBRARY_APP_URL: 'http://127.0.0.1:1',
        LIBRARY_CLIENT_ID: 'id',
        LIBRARY_CLIENT_SECRET: 'secret',
        ...change,
      }),
      'PUBLIC_URL',
    );
  expect(await look({})).toMatchObject({ level: 'ok', found: `nothing answers at http://localhost:${port} yet` });
  expect(await look({ PUBLIC_URL: `http://localhost:${other}` })).toMatchObject({
    level: 'note',
    found: `is http://localhost:${other}, but asset-mirror will listen at http://127.0.0.1:${port}`,
  });
  await rm(directory, { recursive: true });
});

test.runIf(process.getuid?.() === 0)('the doctor notes a DATA_DIR that other accounts may enter', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-doctor-'));
  await chmod(directory, 0o755);
  const look = async () =>
    of(
      await findings({
        DATA_DIR: directory,
        LIBRARY_API_URL: `http://127.0.0.1:${await freePort()}`,
        LIBRARY_APP_URL: 'http://127.0.0.1:1',
        LIBRARY_CLIENT_ID: 'id',
        LIBRARY_CLIENT_SECRET: 'secret',
      }),
      'DATA_DIR',
    );
  // The next start changes the mode of its own directory.
  expect(await look()).toBeUndefined();
  await chown(directory, 12345, 12345);
  expect(await look()).toMatchObject({ level: 'note', remedy: `chmod 700 ${directory}` });
  await rm(directory, { recursive: true });
});

test.each([
  [0, 'ok'],
  [-4000, 'ok'],
  [30_000, 'note'],
  [-30_000, 'note'],
  [300_000, 'wrong'],
])('the doctor finds that a clock that is %i ms off is %s', (ms, level) => {
  expect(clockFinding('library', ms, 'the service').level).toBe(level);
});
