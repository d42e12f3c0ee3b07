import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { contentOf, richest } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { connectTo, type Line, settleLongAgo } from './verifications.ts';

/** Assets that settled long ago are compared during the listing, others after it. */
const ages = [
  { ...richest(), name: `${richest().name}, settled long ago`, old: true },
  { name: 'a directory, just settled', redis: undefined, s3: undefined, old: false },
];

describe.each(ages)('verify ($name)', { timeout: 240_000 }, (kind) => {
  let scene: Scene;
  let database: pg.Client;
  /** A document, and a film with everything that an asset can have. */
  let plain: { id: string; key: string };
  let film: { id: string; key: string };
  let thumbnail: string;
  beforeAll(async () => {
    scene = await newScene({ redis: kind.redis, s3: kind.s3 });
    database = await connectTo(scene);
    const document = await scene.upload({ content: { text: 'the content of it' } });
    const video = await scene.film();
    await scene.resync();
    await scene.mirror.quiet();
    await scene.checked();
    plain = { id: document, key: (await scene.mirror.asset(document)).key };
    film = { id: video, key: (await scene.mirror.asset(video)).key };
    thumbnail = (await scene.keys(video)).find((key) => key.includes('.thumbnail.'))!;
  });
  afterEach(async () => {
    await scene.admin.clearFaults();
  });
  afterAll(async () => {
    await database?.end();
    await scene?.close();
  });

  async function verify(how: object = {}) {
    if (kind.old) await database.query(settleLongAgo);
    const { id } = await scene.mirror.api('POST', '/verify', how);
    const run = await until('the verification to end', async () => {
      const run = await scene.mirror.api('GET', `/verify/${id}?limit=1000`);
      return ['done', 'failed'].includes(run.status) && run;
    });
    expect(run).toMatchObject({ status: 'done', error: null });
    return run;
  }
  const linesAfter = (id: string, after: number, limit: number) =>
    scene.mirror.api('GET', `/verify/${id}?after=${after}&limit=${limit}`);
  const brief = (run: { lines: Line[] }) =>
    run.lines.map(({ mark, key, assetId }) => `${mark} ${key ?? assetId}`).sort();
  const overwrite = (key: string, body: string | Buffer) => scene.storage.put(key, body);
  async function flip(key: string): Promise<void> {
    const content = (await contentOf(scene.storage, key))!;
    content[content.length - 2]! ^= 1;
    await overwrite(key, content);
  }
  const downloads = async (id: string) =>
    (await scene.admin.requests({ assetId: id })).filter(({ endpoint }) => endpoint === 'media').length;

  test('a complete mirror has no differences; with `all`, each object is listed', async () => {
    const run = await verify({ deep: true, all: true });
    expect(run).toMatchObject({ differences: 0, progress: { done: 2, total: 2 } });
    expect(brief(run)).toEqual(
      [...(await scene.keys(plain.id)), ...(await scene.keys(film.id))].map((key) => `= ${key}`).sort(),
    );
    expect(await linesAfter(run.id, 0, 3)).toMatchObject({ lines: run.lines.slice(0, 3), next: 3 });
    expect(await linesAfter(run.id, 3, 0)).toMatchObject({ lines: [], next: 3 });
    expect(await linesAfter(run.id, 3, 5)).toMatchObject({ lines: run.lines.slice(3), next: null });
    expect(run.lines.map(({ kind }: Line) => kind).sort()).toEqual(
      ['media', 'media', 'record', 'record', 'thumbnail', 'transcript', 'transcript', 'transcript'].sort(),
    );
    expect(run.counts).toMatchObject({ same: 8, moving: 0 });
    expect(run.counts.bytesRead).toBeGreaterThan(17);
    // Objects are read only on request.
    expect(await verify()).toMatchObject({ lines: [], counts: { same: 8, bytesRead: 0 } });
  });

  test('each kind of missing object is reported and repaired; only media is downloaded', { tags: 'slow' }, async () => {
    for (const key of [film.key, `${film.key}.asset.json`, `${film.key}.vtt`, thumbnail, plain.key]) {
      const before = { film: await downloads(film.id), plain: await downloads(plain.id) };
      await scene.storage.remove(key);
      const run = await verify({ repair: true });
      expect(brief(run)).toEqual([`- ${key}`]);
      expect(run).toMatchObject({ differences: 1, counts: { missing: 1, same: 7, repaired: 1 } });
      await scene.mirror.quiet();
      expect(await scene.storage.head(key)).toBeDefined();
      expect(await downloads(film.id)).toBe(before.film + Number(key === film.key));
      expect(await downloads(plain.id)).toBe(before.plain + Number(key === plain.key));
    }
    expect((await verify({ deep: true })).differences).toBe(0);
  });

  test('a missing record is reported until it could be written again', { tags: 'slow' }, async () => {
    const record = `${plain.key}.asset.json`;
    await scene.storage.remove(record);
    await scene.admin.addFault({ endpoint: 'asset', assetId: plain.id, body: {} });
    for (let times = 0; times < 2; times++) {
      expect(brief(await verify({ repair: true }))).toEqual([`- ${record}`]);
      await scene.mirror.quiet();
    }
    await scene.admin.clearFaults();
    await verify({ repair: true });
    await scene.mirror.quiet();
    expect(await verify()).toMatchObject({ differences: 0, counts: { same: 8 } });
  });

  test('an asset with all its objects missing is reported and repaired', { tags: 'slow' }, async () => {
    const keys = await scene.keys(film.id);
    for (const key of keys) await scene.storage.remove(key);
    expect(brief(await verify({ repair: true }))).toEqual(keys.map((key) => `- ${key}`).sort());
    await scene.mirror.quiet();
    expect((await scene.keys(film.id)).sort()).toEqual([...keys].sort());
    expect((await verify({ deep: true })).differences).toBe(0);
  });

  test('an object of another size is reported with both sizes, whatever its kind', { tags: 'slow' }, async () => {
    const keys = [plain.key, `${plain.key}.asset.json`, `${film.key}.vtt`, thumbnail];
    const lengths = new Map<string, number>();
    for (const key of keys) {
      const content = (await contentOf(scene.storage, key))!;
      lengths.set(key, content.length);
      await overwrite(key, key === plain.key ? content.subarray(0, 3) : Buffer.concat([content, content]));
    }
    const run = await verify({ repair: true });
    expect(brief(run)).toEqual(keys.map((key) => `* ${key}`).sort());
    for (const { key, text, reason } of run.lines) {
      const now = key === plain.key ? 3 : 2 * lengths.get(key)!;
      expect(text).toMatch(new RegExp(`^has ${now} bytes, but ${lengths.get(key)} were stored`));
      expect(reason).toMatchObject({ code: 'wrong_length', expected: lengths.get(key), got: now, text });
    }
    await scene.mirror.quiet();
    expect((await verify({ deep: true })).differences).toBe(0);
  });

  test('a flipped byte is found with `deep`, and by the ETag without it', { tags: 'slow' }, async () => {
    const keys = [plain.key, `${film.key}.asset.json`, `${film.key}.txt`, thumbnail];
    for (const key of keys) await flip(key);
    const all = keys.map((key) => `* ${key}`).sort();
    expect(brief(await verify())).toEqual(kind.s3 ? all : []);
    const run = await verify({ deep: true, repair: true });
    expect(brief(run)).toEqual(all);
    for (const { text } of run.lines) expect(text).toMatch(/^has CRC-32 [0-9a-f]{8}, but [0-9a-f]{8} was stored: the /);
    await scene.mirror.quiet();
    expect((await verify({ deep: true })).differences).toBe(0);
    expect((await contentOf(scene.storage, plain.key))?.toString()).toBe('the content of it');
  });

  test('foreign objects are reported and never removed', async () => {
    const keys = ['a stranger', `acme/_/${plain.id}/beside.txt`, 'zzz/0', 'acme/_/nobody/x.bin'];
    for (const key of keys) await overwrite(key, 'what is this');
    await overwrite('_mirror/own', 'ours');
    const run = await verify({ repair: true, deep: true });
    expect(brief(run)).toEqual(keys.map((key) => `+ ${key}`).sort());
    expect(run).toMatchObject({ differences: 4, counts: { foreign: 4, same: 8, repaired: 0 } });
    expect(brief(await verify({ connectionId: scene.connectionId }))).toEqual([]);
    for (const key of keys) {
      expect(await scene.storage.head(key)).toBeDefined();
      await scene.storage.remove(key);
    }
  });

  test('a media file with the name of a record is verified as media, with its sidecars', { tags: 'slow' }, async () => {
    const id = await scene.upload({ name: 'x.asset.json', content: { text: '{"version":1}' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.mirror.quiet();
    const { key } = await scene.mirror.asset(id);
    expect(key).toMatch(/\/x\.asset\.json$/);
    const kinds = (await verify({ all: true })).lines.filter(({ assetId }: Line) => assetId === id);
    expect(kinds.map(({ mark, key, kind }: Line) => [mark, key, kind])).toEqual([
      ['=', key, 'media'],
      ['=', `${key}.asset.json`, 'record'],
    ]);
    for (const [lost, fetched] of [
      [key, 1],
      [`${key}.asset.json`, 0],
    ] as const) {
      const before = await downloads(id);
      await scene.storage.remove(lost);
      expect(brief(await verify({ repair: true }))).toEqual([`- ${lost}`]);
      await scene.mirror.quiet();
      expect(await downloads(id)).toBe(before + fetched);
    }
    // An object that no record names is foreign, even if it looks like a record.
    const stranger = `acme/_/${id}/y.asset.json`;
    await overwrite(stranger, '{}');
    expect(brief(await verify({ deep: true }))).toEqual([`+ ${stranger}`]);
    await scene.storage.remove(stranger);
    await scene.admin.removeAsset(id);
  });

  test('an asset that is not mirrored is reported with the reason; one without a file is no difference', async () => {
    const missing = await scene.upload({ status: 'unavailable' });
    const broken = await scene.upload({ name: 'broken.bin' });
    // It has attempts for minutes, so it has not failed when it is compared.
    await scene.admin.addFault({ endpoint: 'media', assetId: broken, status: 503 });
    const run = await verify();
    const of = (id: string) => run.lines.find(({ assetId }: Line) => assetId === id);
    // The full sync before it has found them; their state now is shown as it is.
    expect(of(broken)).toMatchObject({ mark: '-', key: null, difference: true });
    expect(of(broken).text).toMatch(/^broken\.bin: (not mirrored yet|in transfer)/);
    expect(of(missing)).toMatchObject({ mark: '-' });
    await scene.mirror.assetIn(missing, 'unavailable');
    const later = await verify();
    expect(later.lines.find(({ assetId }: Line) => assetId === missing)).toMatchObject({
      mark: '-',
      difference: false,
      text: expect.stringMatching(/the library says that no file is attached$/),
      reason: { code: 'not_mirrored', state: 'unavailable', reason: { code: 'no_file' } },
    });
    expect(later.counts.absent).toBe(1);
    await scene.admin.clearFaults();
    await scene.mirror.api('POST', `/connections/${scene.connectionId}/resync`, {
      mode: 'incremental',
      assetIds: [broken],
    });
    await scene.mirror.assetIn(broken, 'mirrored');
    await scene.admin.removeAsset(missing).catch(() => {});
  });

  test('a verification waits in front of a wrong bucket, and does not take it for an empty one', async () => {
    const own = (await contentOf(scene.storage, '_mirror/id'))!;
    const content = (await contentOf(scene.storage, plain.key))!;
    for (const key of ['_mirror/id', plain.key]) await scene.storage.remove(key);
    const { id } = await scene.mirror.api('POST', '/verify', { repair: true });
    const state = async () => scene.mirror.api('GET', `/verify/${id}`);
    await until('the run to wait', async () => /not the bucket/.test((await state()).error));
    await overwrite(plain.key, content);
    await overwrite('_mirror/id', own);
    const run = await until('its end', async () => (await state()).finishedAt && state());
    expect(run).toMatchObject({ status: 'done', counts: { missing: 0, repaired: 0 } });
  });

  test('a verification during transfers and changes reports no false difference', { tags: 'slow' }, async () => {
    await scene.mirror.quiet();
    let going = true;
    const traffic = (async () => {
      for (let n = 0; going; n++) {
        const id = await scene.upload({ name: `busy ${n}.bin`, content: { seed: `${n}`, size: 200_000 } });
        await scene.mirror.api('POST', `/connections/${scene.connectionId}/resync`, {
          mode: 'incremental',
          assetIds: [plain.id, film.id],
        });
        await scene.resync();
        if (n % 2) await scene.admin.changeAsset(id, { name: `renamed ${n}.bin` });
        await scene.mirror.assetIn(id, 'mirrored');
      }
    })();
    try {
      for (let round = 0; round < 3; round++) {
        const run = await verify({ deep: round % 2 === 0 });
        expect(run.lines.filter(({ mark }: Line) => mark !== '-')).toEqual([]);
        // A new upload may be missing in the bucket, which is correct.
        expect(run.lines.filter(({ key }: Line) => key !== null)).toEqual([]);
      }
    } finally {
      going = false;
      await traffic;
    }
    await scene.mirror.quiet();
    expect((await verify({ deep: true })).counts).toMatchObject({ missing: 0, foreign: 0, different: 0, errors: 0 });
  });

  test('a connection that cannot be listed is reported as an error', async () => {
    await scene.admin.addFault({ endpoint: 'me', status: 500 });
    const run = await verify();
    expect(run.lines.filter(({ mark }: Line) => mark === '!')).toEqual([
      expect.objectContaining({
        text: expect.stringMatching(/^the library was not compared for connection /),
        reason: expect.objectContaining({ code: 'library_not_compared', status: 'failed' }),
      }),
    ]);
    expect(run.differences).toBe(1);
  });

  test('a library that was not listed completely is reported as an error', async () => {
    const { userId } = (await scene.mirror.store.connections.get(scene.connectionId))!;
    const companies = [...(await scene.mirror.store.connections.companies([scene.connectionId])), { id: 5 }];
    await scene.admin.addFault({
      endpoint: 'me',
      body: { user: { id: userId, name: 'x', email: 'x@example.com' }, companies },
    });
    const run = await verify();
    expect(run.lines.filter(({ mark }: Line) => mark === '!')).toEqual([
      expect.objectContaining({
        text: expect.stringMatching(
          /^the library was not fully compared for connection .*: read \/me: .* company .* was skipped/,
        ),
      }),
    ]);
    expect(run.differences).toBe(1);
  });

  test('a disconnected connection is reported until an operator disconnects it, too', async () => {
    const { connectionId } = scene;
    const notCompared = async (how = {}) => {
      const { differences, lines } = await verify(how);
      const found = lines.filter(({ mark }: Line) => mark === '!');
      expect(differences).toBe(found.length);
      return found;
    };
    const reason = expect.objectContaining({ code: 'library_not_compared', connectionId });
    const ofConnection = expect.objectContaining({ reason });
    await scene.admin.endConnections();
    expect(await notCompared()).toEqual([ofConnection]);
    const ended = await scene.mirror.api('POST', `/connections/${connectionId}/disconnect`);
    expect(ended).toMatchObject({ reason: { code: 'disconnected_by_operator' }, revoked: null });
    expect(await notCompared()).toEqual([]);
    expect(await notCompared({ connectionId })).toEqual([ofConnection]);
    await scene.mirror.connect();
    expect(await notCompared({ connectionId })).toEqual([]);
  });

  test('an unknown verification is answered with verification_not_found', async () => {
    await expect(scene.mirror.api('GET', '/verify/none')).rejects.toThrow(/404 .*verification_not_found/);
    await expect(scene.mirror.api('POST', '/verify', { connectionId: 'none' })).rejects.toThrow(/connection_not_found/);
    await expect(scene.mirror.api('POST', '/verify', { deep: 'yes' })).rejects.toThrow(/invalid_request/);
  });
});
