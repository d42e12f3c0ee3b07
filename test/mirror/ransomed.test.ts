import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { scrape } from '../metrics/scrape.ts';
import { type Admin, type Library, startTestLibrary } from '../support/library.ts';
import { contentOf, type Ground, newGround, spawnMirror } from '../support/mirror.ts';
import { freePort } from '../support/ports.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { spawned } from '../support/spawned.ts';
import { until } from '../support/until.ts';

const spoken = (text: string) => ({ language: 'de', durationSec: 3, text, vtt: 'WEBVTT\n\n', words: null });

describe('a library in which all files are replaced at once', () => {
  let scene: Scene;
  const ids: string[] = [];
  beforeAll(async () => {
    scene = await newScene();
    for (let i = 0; i < 60; i++) ids.push(await scene.upload({ content: { text: `good ${i}` } }));
    await scene.resync();
    await until('all to be mirrored', async () => {
      const { assets } = await scene.mirror.api('GET', '/status');
      return assets.byState.mirrored === ids.length;
    });
    await scene.mirror.quiet();
  });
  afterAll(async () => {
    await scene?.close();
  });

  const textOf = async (id: string) => (await scene.media(id))?.toString();
  const contents = () => Promise.all(ids.map(textOf));
  const good = () => ids.map((_, i) => `good ${i}`);
  const connection = () => scene.mirror.api('GET', `/connections/${scene.connectionId}`);
  const run = (...args: string[]) =>
    promisify(execFile)(process.execPath, ['src/main.ts', ...args], {
      env: {
        ...spawned,
        ASSET_MIRROR_URL: scene.ground.publicUrl,
        ADMIN_TOKEN: 'the-token-of-the-operators',
      },
    });
  const synced = async (mode: string) => {
    // The command fails, because an operator must accept the changes.
    const syncing = run('resync', scene.connectionId, ...(mode === 'full' ? ['--full'] : []), '--wait');
    await expect(syncing).rejects.toMatchObject({ code: 1 });
    await scene.mirror.quiet();
  };

  test('every good copy stays until an operator accepts the other files', { tags: 'slow' }, async () => {
    for (const [i, id] of ids.entries()) {
      await scene.admin.changeAsset(id, { content: { text: `ransomed ${i}` }, uploadDate: Date.now() - 60_000 + i });
    }
    for (const mode of ['incremental', 'full', 'incremental']) await synced(mode);
    expect(await contents()).toEqual(good());
    expect((await scene.record(ids[7]!)).media.key).toBe((await scene.mirror.asset(ids[7]!)).key);

    const changes = { kind: 'replaced', count: 60, known: 60 };
    expect(await connection()).toMatchObject({ condition: { code: 'held' }, companies: [{ held: [changes] }] });
    const { stdout } = await run('status');
    const advice = `asset-mirror resync ${scene.connectionId} --company acme --accept-replaced`;
    expect(stdout).toContain(`60 of 60 mirrored assets of Acme; none is replaced. To accept it: ${advice}`);
    expect(await scene.mirror.api('GET', '/status')).toMatchObject({ connections: { troubled: 1 } });
    const seen = await scrape(scene.ground.publicUrl);
    expect(seen.by('asset_mirror_held_companies', 'kind')).toEqual({ missing: 0, removed: 0, replaced: 1 });
  });

  test('while a company is held, new assets are mirrored and a lost record is written again', {
    tags: 'slow',
  }, async () => {
    const added = await scene.upload({ content: { text: 'new' }, uploadDate: Date.now() - 1000 });
    const { key } = await scene.mirror.asset(ids[3]!);
    const before = await scene.record(ids[3]!);
    await scene.storage.remove(`${key}.asset.json`);
    await scene.mirror.api('POST', '/verify', { repair: true });
    await scene.checked();
    await until('the record', async () => (await scene.storage.head(`${key}.asset.json`)) !== undefined);
    const times = { mirroredAt: expect.any(String), writtenAt: expect.any(String) };
    expect(await scene.record(ids[3]!)).toEqual({ ...before, ...times });
    await scene.mirror.assetIn(added, 'mirrored');
    expect(await contents()).toEqual(good());
  });

  test('while a company is held, the repair of a damaged file does not fetch the other file of the library', {
    tags: 'slow',
  }, async () => {
    const { key } = await scene.mirror.asset(ids[5]!);
    await scene.storage.put(key, 'gooD 5');
    const { id } = await scene.mirror.api('POST', '/verify', { repair: true, deep: true });
    await scene.checked();
    await scene.mirror.quiet();
    const counts = { different: 1, repaired: 0 };
    expect(await scene.mirror.api('GET', `/verify/${id}`)).toMatchObject({ counts });
    expect(await textOf(ids[5]!)).toBe('gooD 5');
    await scene.storage.put(key, 'good 5');
    expect(await contents()).toEqual(good());
  });

  test('the files of the library replace the stored ones after an operator has accepted them', {
    tags: 'slow',
  }, async () => {
    await run('resync', scene.connectionId, '--company', 'acme', '--accept-replaced', '--wait');
    expect(await contents()).toEqual(ids.map((_, i) => `ransomed ${i}`));
    expect(await connection()).toMatchObject({ condition: { code: 'up_to_date' }, companies: [{ held: [] }] });
  });

  test('a follow-up check that finds another file leaves the stored one, until the next sync', async () => {
    const id = await scene.film({ transcript: undefined, content: { text: 'first' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect((await scene.mirror.asset(id)).transcript).toBe('pending');
    await scene.admin.changeAsset(id, { content: { text: 'second one' } });
    const aside = () => scene.mirror.store.replacements.since(id);
    await until('the follow-up check', async () => (await aside()) !== undefined);
    await scene.mirror.quiet();
    expect(await textOf(id)).toBe('first');
    await scene.admin.changeAsset(id, { transcript: spoken('zwei') });
    await scene.resync({ mode: 'incremental' });
    await until('the other file', async () => (await textOf(id)) === 'second one');
    await until('its transcript', async () => (await scene.mirror.asset(id)).transcript === 'mirrored');
  });
});

describe('a process that is killed while the library is replaced', () => {
  let library: Library;
  let admin: Admin;
  let ground: Ground;
  let mirror: Awaited<ReturnType<typeof spawnMirror>>;
  const count = 130;
  const ids: string[] = [];
  beforeAll(async () => {
    ground = await newGround({ port: await freePort() });
    ({ library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] }));
    await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
    for (let i = 0; i < count; i++) ids.push(await upload(i));
    mirror = await spawnMirror(ground, library);
  });
  afterAll(async () => {
    await mirror?.kill('SIGKILL');
    await library?.close();
    await ground?.clear();
  });

  const upload = async (i: number) => {
    const asset = { name: 'file.bin', mimeType: 'application/octet-stream', assetType: 'documents', thumbnail: false };
    const uploadDate = Date.UTC(2024, 0, 1) + i * 1000;
    return (await admin.addAsset({ companyId: 'acme', ...asset, uploadDate, content: { text: `good ${i}` } })).id;
  };
  const textOf = async (id: string) => (await contentOf(ground.storage, `acme/_/${id}/file.bin`))?.toString();
  const ransomed = async () =>
    (await Promise.all(ids.map(textOf))).filter((text) => text?.startsWith('ransomed')).length;
  const restart = async () => {
    await mirror.kill('SIGKILL');
    await admin.clearFaults();
    mirror = await spawnMirror(ground, library);
  };
  const isMirrored = async () => (await mirror.api('GET', '/status')).assets.byState.mirrored === count;

  test('no good copy is lost if a process is killed between two pages or while accepted files replace them', {
    tags: 'slow',
  }, async () => {
    const connectionId = await mirror.connect();
    await until('all to be mirrored', isMirrored);
    await mirror.quiet();
    for (const [i, id] of ids.entries()) await admin.changeAsset(id, { content: { text: `ransomed ${i}` } });

    await admin.addFault({ endpoint: 'assets', companyId: 'acme', skip: 1, latency: 60_000 });
    const path = `/connections/${connectionId}`;
    const { syncId } = await mirror.api('POST', `${path}/resync`, { mode: 'full' });
    await until('the first page', async () => (await mirror.api('GET', `/syncs/${syncId}`)).pages === 1);
    await restart();
    const held = async () => (await mirror.api('GET', path)).companies[0].held;
    await until('the company to be held', async () => (await held()).length > 0);
    expect(await held()).toMatchObject([{ kind: 'replaced', count, known: count }]);
    await mirror.quiet();
    expect(await ransomed()).toBe(0);

    await mirror.api('POST', `${path}/resync`, { mode: 'full', companyId: 'acme', acceptReplaced: true });
    await until('some to be replaced', async () => (await ransomed()) > 0);
    await restart();
    await until('all to be replaced', async () => (await ransomed()) === count && (await isMirrored()));
    await until('the company to be no longer held', async () => (await held()).length === 0);
  });
});
