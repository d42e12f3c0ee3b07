import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import type { Finding } from '../src/floor/finding.ts';
import { startBare } from './source/bare.ts';
import { newDatabase } from './support/database.ts';
import { findings, of, run, wrong } from './support/doctor.ts';
import { freePort } from './support/ports.ts';
import { newScene, type Scene } from './support/scene.ts';

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

  test('the doctor omits findings that need the database if the database is not available', async () => {
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
