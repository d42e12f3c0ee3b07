// @module-tag slow
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { removeGone } from '../../src/mirror/removal/remove-gone.ts';
import { rebuild } from '../../src/verify/rebuild/rebuild.ts';
import { newStore } from '../store/records.ts';
import { ask } from '../support/database.ts';
import { contentOf, richest } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const { signal } = new AbortController();
interface Change {
  cursor: string;
  kind: string;
  assetId: string;
  name: string | null;
  objects: { key: string; bytes: number; crc32: string }[];
}

let scene: Scene;
beforeAll(async () => {
  scene = await newScene({ redis: richest().redis, s3: richest().s3, environment: { GONE_RETENTION: '30d' } });
});
afterAll(() => scene?.close());

const list = (after?: string, limit = 1000): Promise<{ changes: Change[]; nextCursor: string }> =>
  scene.mirror.api('GET', `/changes?limit=${limit}${after === undefined ? '' : `&after=${after}`}`);
const of = async (id: string) => (await list()).changes.filter(({ assetId }) => assetId === id);
const kinds = async (id: string) => (await of(id)).map(({ kind }) => kind);
/** Waits until the feed has these changes of an asset, and no others. */
async function expectKinds(id: string, ...expected: string[]): Promise<Change> {
  await until(`${id} to have ${expected}`, async () => (await kinds(id)).length >= expected.length).catch(() => {});
  expect(await kinds(id)).toEqual(expected);
  return (await of(id)).at(-1)!;
}
async function sync(request?: object): Promise<void> {
  await scene.resync(request);
  await scene.mirror.quiet();
  await scene.checked();
  // An open transaction, also of another database of this server, holds back later changes.
  await until('the feed to have all changes', async () => {
    const [written] = await scene.query<{ count: string }>('SELECT count(*) FROM asset_changes');
    return (await list()).changes.length === Number(written!.count);
  });
}
/** The objects in the bucket are those of the change, with these lengths. */
async function expectObjects(id: string, { objects }: Change): Promise<void> {
  expect(objects.map(({ key }) => key).sort()).toEqual((await scene.keys(id)).sort());
  expect(objects[0]!.key).toBe((await scene.mirror.asset(id)).key);
  for (const { key, bytes, crc32 } of objects) {
    expect((await contentOf(scene.storage, key))!.length).toBe(bytes);
    expect(crc32).toMatch(/^[\da-f]{8}$/);
  }
}

test('an asset is added, gets a transcript, other metadata and another file, is gone, and comes back', async () => {
  const id = await scene.film();
  await sync();
  await expectObjects(id, await expectKinds(id, 'added', 'transcript'));
  await sync();
  await expectKinds(id, 'added', 'transcript');

  await scene.admin.changeAsset(id, { name: 'another name' });
  await sync();
  const renamed = await expectKinds(id, 'added', 'transcript', 'metadata');
  expect(renamed).toMatchObject({ name: 'another name' });
  await expectObjects(id, renamed);

  await scene.admin.changeAsset(id, { content: { text: 'another cut' } });
  await sync();
  const sofar = ['added', 'transcript', 'metadata', 'replaced', 'transcript'];
  await expectObjects(id, await expectKinds(id, ...sofar));

  await scene.admin.removeAsset(id);
  await sync();
  expect(await expectKinds(id, ...sofar, 'gone')).toMatchObject({ name: 'another name', objects: [] });
  expect(await scene.keys(id)).toHaveLength(6);

  await scene.film({ id, content: { text: 'another cut' } });
  await sync();
  expect((await kinds(id)).slice(0, 7)).toEqual([...sofar, 'gone', 'added']);
  // A follow-up check may still write its record again.
  await vi.waitFor(async () => expectObjects(id, (await of(id)).at(-1)!), 60_000);
});

test('a thumbnail that comes later is a change', async () => {
  const id = await scene.upload({ name: 'p.jpg', mimeType: 'image/jpeg', assetType: 'photography', thumbnail: true });
  await scene.admin.addFault({ endpoint: 'thumbnail', assetId: id, times: 1, status: 500 });
  await sync();
  await expectObjects(id, await expectKinds(id, 'added', 'thumbnail'));
});

test('removals are changes with the ids only, and an erasure removes the earlier changes', async () => {
  const removed = await scene.upload({ name: 'removed' });
  const erased = await scene.upload({ name: 'erased' });
  await sync();
  await scene.admin.removeAsset(removed);
  await sync();
  const url = scene.ground.environment.DATABASE_URL!;
  await ask(url, `UPDATE assets SET gone_at = now() - interval '31 days' WHERE id = '${removed}'`);
  const { store, storage, log } = scene.mirror.service.context;
  expect(await removeGone({ store, storage, log, leaseMs: 60_000, signal }, 30 * 86_400_000)).toBe(1);
  expect(await expectKinds(removed, 'added', 'gone', 'erased')).toMatchObject({ name: null, objects: [] });

  await expectKinds(erased, 'added');
  await scene.mirror.api('POST', '/erasures', { assetIds: [erased], reason: 'requested' });
  await until('the erasure', async () => (await kinds(erased)).at(-1) === 'erased');
  await expectKinds(erased, 'erased');
});

test('a rebuild adds what it restores, and objects without known lengths have none', async () => {
  const id = await scene.upload({ name: 'kept' });
  await sync();
  const opened = await newStore();
  try {
    const { storage } = scene.mirror.service.context;
    const deps = { store: opened.store, storage, thumbnails: { mirror: true } };
    await rebuild(deps, { onProblem: () => {}, signal });
    const changes = await until('the change', async () => {
      const page = await opened.store.changes.page(undefined, 1000);
      return typeof page === 'object' && page.changes.find(({ assetId }) => assetId === id);
    });
    const { key } = await scene.mirror.asset(id);
    const record = { key: `${key}.asset.json`, bytes: null, crc32: null };
    expect(changes).toMatchObject({ kind: 'added', objects: [{ key, bytes: 5 }, record] });
  } finally {
    await opened.close();
  }
});

test('the inventory has the cursor after which its changes follow', async () => {
  await scene.mirror.api('POST', '/verify', { inventory: true });
  await scene.checked();
  const written = await Array.fromAsync(scene.storage.list('_mirror/inventory/'));
  const last = written.findLast(({ key }) => key.endsWith('/manifest.json'))!;
  const { cursor } = JSON.parse((await contentOf(scene.storage, last.key))!.toString());
  const id = await scene.upload();
  await sync();
  await expectKinds(id, 'added');
  expect((await list(cursor)).changes.map(({ assetId }) => assetId)).toEqual([id]);
});

test('pages continue after their last change, and what is wrong with a request is said', async () => {
  const all = await list();
  expect(all.changes.length).toBeGreaterThan(5);
  const paged: Change[] = [];
  for (let cursor: string | undefined; paged.length < all.changes.length; ) {
    const page = await list(cursor, 2);
    paged.push(...page.changes);
    cursor = page.nextCursor;
    expect(cursor).toBe(page.changes.at(-1)!.cursor);
  }
  expect(paged).toEqual(all.changes);
  expect(await list(all.nextCursor)).toEqual({ changes: [], nextCursor: all.nextCursor });

  const answer = async (query: string, token = 'the-token-of-the-operators') => {
    const headers = { authorization: `Bearer ${token}` };
    const response = await fetch(`${scene.ground.publicUrl}/api/changes${query}`, { headers });
    const { code } = (await response.json()) as { code?: string };
    return [response.status, code];
  };
  expect(await answer('', 'another')).toEqual([401, 'unauthorized']);
  expect(await answer('?after=nonsense')).toEqual([400, 'invalid_cursor']);
  expect(await answer('?limit=1001')).toEqual([400, 'invalid_request']);
  expect(await answer('?after=00000000-1-1')).toEqual([410, 'cursor_expired']);
});
