import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { sweepUploads } from '../../../src/mirror/removal/sweep-uploads.ts';
import { leaseOf } from '../../../src/store/assets/leases.ts';
import { grounds } from '../../support/mirror.ts';
import { newScene, type Scene } from '../../support/scene.ts';

const week = 7 * 24 * 3_600_000;
const bytes = 40 * 2 ** 20;

describe.each(grounds())('abandoned uploads ($name)', (kind) => {
  let scene: Scene;
  let database: pg.Client;
  beforeAll(async () => {
    scene = await newScene({ redis: kind.redis, s3: kind.s3 });
    database = new pg.Client({ connectionString: scene.ground.environment.DATABASE_URL });
    await database.connect();
  });
  afterEach(async () => {
    await database.query('UPDATE assets SET upload = NULL, lease_until = NULL, next_at = NULL');
    await clear(-60_000);
  });
  afterAll(async () => {
    await database?.end();
    await scene?.close();
  });
  const clear = (ageMs: number, patienceMs = week) =>
    sweepUploads({ store: scene.mirror.store, storage: scene.mirror.service.context.storage }, { ageMs, patienceMs });

  /** An asset, and an upload at its key whose id was never saved because the process died. */
  async function begun() {
    const id = await scene.upload();
    await scene.resync();
    const { key } = await scene.mirror.assetIn(id, 'mirrored');
    await scene.mirror.quiet();
    const { store } = scene.mirror;
    const inHand = async (until: string) =>
      database.query(`UPDATE assets SET lease_until = ${until} WHERE id = $1`, [id]);
    await inHand("now() + interval '1 minute'");
    expect(await store.uploads.announce(leaseOf({ ...(await store.assets.get(id))!, leasedAt: new Date() }), key)).toBe(
      true,
    );
    await inHand('NULL');
    const upload = await scene.mirror.service.context.storage.uploads.begin(key, { bytes });
    return { id, upload };
  }
  const left = async () => (await scene.ground.leftovers()).length > 0;
  const save = (id: string, upload: object, more = 'next_at') =>
    database.query(`UPDATE assets SET upload = $2, ${more} = now() + interval '1 day' WHERE id = $1`, [
      id,
      JSON.stringify(upload),
    ]);

  test('an upload that no record knows is aborted when it is old enough, not before', async () => {
    await begun();
    expect(await clear(60_000)).toBe(0);
    expect(await left()).toBe(true);
    expect(await clear(-60_000)).toBe(1);
    expect(await left()).toBe(false);
  });

  test('an upload that can resume is kept while parts arrive, and aborted later', async () => {
    const { id, upload } = await begun();
    await save(id, upload);
    await database.query(
      "INSERT INTO upload_parts (asset_id, number, bytes, etag, crc32) VALUES ($1, 1, 5, 'etag', 'crc')",
      [id],
    );
    expect(await clear(-60_000)).toBe(0);
    await database.query("UPDATE upload_keys SET begun_at = now() - interval '8 days'");
    expect(await clear(-60_000)).toBe(0);
    await database.query("UPDATE upload_parts SET stored_at = now() - interval '8 days'");
    expect(await clear(-60_000)).toBe(1);
    expect(await left()).toBe(false);
    expect(await scene.mirror.store.assets.get(id)).toMatchObject({ upload: null });
    expect(await scene.mirror.store.assets.parts(id)).toEqual([]);
  });

  test('an upload of a finished asset is aborted', async () => {
    const { id, upload } = await begun();
    await save(id, upload);
    await database.query('UPDATE assets SET next_at = NULL WHERE id = $1', [id]);
    expect(await clear(-60_000)).toBe(1);
    expect(await left()).toBe(false);
  });

  test('an upload of a running worker is kept, however long it takes', async () => {
    const { id, upload } = await begun();
    await save(id, upload, 'lease_until');
    expect(await clear(-60_000, 0)).toBe(0);
    expect(await left()).toBe(true);
  });

  test('in a shared bucket only uploads at keys of the mirror are aborted', async () => {
    const { upload } = await begun();
    const { strays } = scene.mirror.store.uploads;
    const open = [
      { id: upload.id, key: upload.key },
      { id: 'another', key: upload.key },
      { id: 'theirs', key: 'acme/theirs' },
    ];
    expect(await strays(open, { shared: true })).toEqual(new Set([upload.id, 'another']));
    expect(await strays(open, { shared: false })).toEqual(new Set([upload.id, 'another', 'theirs']));
  });

  test('one process sweeps abandoned uploads for all, once a day', async () => {
    const { chores } = scene.mirror.store;
    const took = await Promise.all(Array.from({ length: 5 }, () => chores.take('a chore', 60_000)));
    expect(took.filter(Boolean)).toHaveLength(1);
    await chores.done('a chore', 0);
    expect(await chores.take('a chore', 60_000)).toBe(true);
    expect(await chores.take('a chore', 60_000)).toBe(false);
  });
});
