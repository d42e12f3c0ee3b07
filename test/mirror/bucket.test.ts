import { rename } from 'node:fs/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Reason } from '../../src/floor/reason-codes.ts';
import { renderReason } from '../../src/floor/reasons.ts';
import { contentOf, grounds, keysOf } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const patience = 120_000;

describe.each(grounds())('a bucket that has lost objects ($name)', { timeout: 300_000 }, (kind) => {
  let scene: Scene;
  let database: pg.Client;
  /** Everything that an asset can have; and a document. */
  let film: { id: string; keys: Record<'media' | 'record' | 'transcript' | 'thumbnail', string> };
  let plain: { id: string; key: string };
  let whole: string[];
  beforeAll(async () => {
    scene = await newScene({ redis: kind.redis, s3: kind.s3 });
    database = new pg.Client({ connectionString: scene.ground.environment.DATABASE_URL! });
    await database.connect();
    const document = await scene.upload();
    const id = await scene.film();
    await scene.resync();
    await scene.mirror.quiet();
    await scene.checked();
    plain = { id: document, key: (await scene.mirror.asset(document)).key };
    const media = (await scene.mirror.asset(id)).key;
    const thumbnail = (await scene.keys(id)).find((key) => key.includes('.thumbnail.'))!;
    film = { id, keys: { media, record: `${media}.asset.json`, transcript: `${media}.vtt`, thumbnail } };
    whole = (await keysOf(scene.storage)).sort();
  });
  afterAll(async () => {
    await database?.end();
    await scene?.close();
  });

  const downloads = async () =>
    (await scene.admin.requests()).filter(({ endpoint }) => endpoint === 'media').map(({ assetId }) => assetId);
  async function query<T>(text: string): Promise<T[]> {
    return (await database.query(text)).rows;
  }
  const last = async () =>
    (
      await query<{ id: string; status: string; error: string | null; connection_id: string | null }>(
        'SELECT * FROM verifications ORDER BY requested_at DESC LIMIT 1',
      )
    )[0]!;
  /** Why postponed verifications wait. Another one may wait behind them, because the store was wrong. */
  const waiting = async () =>
    (
      await query<{ error: Reason }>(
        `SELECT error FROM verifications WHERE status IN ('waiting', 'running') AND error IS NOT NULL`,
      )
    ).map(({ error }) => renderReason(error));
  const events = () =>
    query<{ connection_id: string | null; data: Record<string, unknown> }>(
      `SELECT connection_id, data FROM events WHERE kind = 'bucket.differs' ORDER BY id`,
    );

  /** The two ways in which the bucket is compared. */
  const ways = [
    ['after a full resync by an operator', async () => void (await scene.resync())],
    [
      'by schedule',
      async () => {
        const { id } = await last();
        await until(
          'the first one to be planned',
          async () => (await query(`SELECT FROM chores WHERE name = 'bucket'`)).length === 1,
          patience,
        );
        await database.query(`UPDATE chores SET due_at = now() WHERE name = 'bucket'`);
        await until('it to be asked for', async () => (await last()).id !== id, patience);
      },
    ],
  ] as const;
  async function settled(): Promise<void> {
    await scene.checked();
    await scene.mirror.quiet();
  }

  describe.each(ways)('a verification %s', (_, compare) => {
    test.each(['media', 'record', 'transcript', 'thumbnail'] as const)(
      'a scheduled verification repairs a lost %s',
      async (what) => {
        const before = (await events()).length;
        await scene.admin.clearRequests();
        await scene.storage.remove(film.keys[what]);
        await compare();
        await settled();
        expect((await keysOf(scene.storage)).sort()).toEqual(whole);
        expect(await downloads()).toEqual(what === 'media' ? [film.id] : []);
        const { id, connection_id } = await last();
        const seen = (await events()).slice(before);
        expect(seen).toEqual([
          { connection_id, data: { verificationId: id, missing: 1, different: 0, errors: 0, foreign: 0, repaired: 1 } },
        ]);
        // It is logged after its end is saved.
        await expect
          .poll(() => scene.mirror.lines)
          .toContainEqual(
            expect.objectContaining({
              level: 'warn',
              verificationId: id,
              event: 'verification.repair_requested',
            }),
          );
      },
    );

    test('a scheduled verification says so if nothing can be repaired', { tags: 'slow' }, async () => {
      const id = await scene.upload();
      await scene.resync();
      await scene.mirror.assetIn(id, 'mirrored');
      await scene.checked();
      await scene.admin.removeAsset(id);
      await scene.resync({ mode: 'full', acceptGone: true });
      await scene.mirror.assetIn(id, 'gone');
      await scene.checked();
      for (const key of await scene.keys(id)) await scene.storage.remove(key);
      await compare();
      await settled();
      const lines = () => scene.mirror.lines.filter(({ event }) => event === 'verification.differences_found');
      await expect.poll(lines).toContainEqual(expect.objectContaining({ level: 'warn', missing: 2, repaired: 0 }));
      await scene.query(`DELETE FROM assets WHERE id = '${id}'`);
    });

    test('a scheduled verification repairs a bucket in which only the mirror id was left', {
      tags: 'slow',
    }, async () => {
      for (const key of whole) await scene.storage.remove(key);
      await compare();
      await settled();
      expect((await keysOf(scene.storage)).sort()).toEqual(whole);
      expect((await scene.media(plain.id))?.toString()).toBe('hello');
    });

    test('a scheduled verification without differences reports nothing, and only counts foreign objects', {
      tags: 'slow',
    }, async () => {
      const before = await events();
      await scene.admin.clearRequests();
      const strangers = Array.from({ length: 30 }, (_, n) => `stranger ${n}`);
      for (const key of strangers) await scene.storage.put(key, 'hello');
      try {
        await compare();
        await settled();
        const { id, connection_id } = await last();
        expect(await scene.mirror.api('GET', `/verify/${id}`)).toMatchObject({
          status: 'done',
          routine: true,
          lines: [],
          counts: { same: whole.length, foreign: connection_id === null ? 30 : 0, missing: 0 },
        });
        expect(await events()).toEqual(before);
        expect(await downloads()).toEqual([]);
        const lines = () => scene.mirror.lines.filter((line) => line.verificationId === id);
        await expect.poll(lines).toMatchObject([{ level: 'info', event: 'verification.done', differences: 0 }]);
      } finally {
        for (const key of strangers) await scene.storage.remove(key);
      }
    });

    test.each([
      ['has no id', undefined],
      ['has the id of another', 'another mirror\n'],
    ])(
      'a scheduled verification repairs nothing in a bucket that %s, and waits for the right one',
      { tags: 'slow' },
      async (_, other) => {
        const own = (await contentOf(scene.storage, '_mirror/id'))!;
        const content = (await contentOf(scene.storage, film.keys.media))!;
        const seen = await events();
        await scene.admin.clearRequests();
        if (other === undefined) await scene.storage.remove('_mirror/id');
        else await scene.storage.put('_mirror/id', other);
        await scene.storage.remove(film.keys.media);
        await scene.storage.put(plain.key, 'what the other one has here');
        await compare();
        await until(
          'it to wait',
          async () => (await waiting()).some((error) => /not the bucket of this database/.test(error)),
          patience,
        );
        expect(await scene.mirror.asset(film.id)).toMatchObject({ state: 'mirrored' });
        expect(await scene.mirror.asset(plain.id)).toMatchObject({ state: 'mirrored' });
        await scene.storage.put(film.keys.media, content);
        await scene.storage.put(plain.key, 'hello');
        await scene.storage.put('_mirror/id', own);
        await settled();
        expect(await last()).toMatchObject({ status: 'done', error: null });
        expect(await downloads()).toEqual([]);
        // A store's ETag is of its own content: the same bytes are the same.
        expect(await events()).toEqual(seen);
      },
    );

    test.runIf(kind.s3)(
      'a scheduled verification reads copied objects once, and knows their ETags afterwards',
      { tags: 'slow' },
      async () => {
        const seen = await events();
        const bytesRead = async () => (await scene.mirror.api('GET', `/verify/${(await last()).id}`)).counts.bytesRead;
        await compare();
        await settled();
        expect(await bytesRead()).toBe(0);
        await database.query(`UPDATE assets SET media = media || '{"etag": "as it was elsewhere"}',
        sidecar_files = (SELECT coalesce(jsonb_object_agg(key, value || '{"etag": "elsewhere"}'), '{}') FROM jsonb_each(sidecar_files))`);
        await scene.admin.clearRequests();
        await compare();
        await settled();
        expect(await bytesRead()).toBeGreaterThan(0);
        await compare();
        await settled();
        expect(await bytesRead()).toBe(0);
        expect(await events()).toEqual(seen);
        expect(await downloads()).toEqual([]);
      },
    );

    test.runIf(!kind.s3)(
      'a scheduled verification waits while the directory is away, and repairs nothing',
      async () => {
        const directory = scene.ground.environment.STORAGE_URL!.slice('file://'.length);
        const seen = await events();
        await scene.admin.clearRequests();
        await rename(directory, `${directory}.aside`);
        try {
          await compare();
          await until('it to wait', async () => (await waiting()).length > 0, patience);
        } finally {
          await rename(`${directory}.aside`, directory);
        }
        await settled();
        expect(await last()).toMatchObject({ status: 'done', error: null });
        expect(await downloads()).toEqual([]);
        expect(await events()).toEqual(seen);
      },
    );
  });
});
