import { crc32 } from 'node:zlib';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { StorageUnavailable } from '../../src/floor/errors.ts';
import { contentHash } from '../support/content-hash.ts';
import { contentOf } from '../support/mirror.ts';
import type { Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { newScrubbing, type Scrubbing } from './scrubbing.ts';

describe('the scrub', () => {
  let made: Scrubbing | undefined;
  let scene: Scene;
  let database: pg.Client;
  let ids: string[];
  let scrubber: Scrubbing['scrubber'];
  let age: Scrubbing['age'];
  let row: Scrubbing['row'];
  let isFresh: Scrubbing['isFresh'];
  let fresh: Scrubbing['fresh'];
  let damage: Scrubbing['damage'];
  let replacedFile: Scrubbing['replacedFile'];
  beforeAll(async () => {
    made = await newScrubbing();
    ({ scene, database, ids, scrubber, age, row, isFresh, fresh, damage, replacedFile } = made);
  });
  afterEach(() => made?.reset());
  afterAll(() => made?.close());
  const stop = new AbortController().signal;
  /** An asset that is mirrored, and that no worker and no verification is about to touch. */
  async function uploaded(text: string): Promise<string> {
    const id = await scene.upload({ content: { text } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.checked();
    await scene.mirror.quiet();
    return id;
  }

  test('a file without a content hash gets it from the scrub, and then its content hash decides', async () => {
    const { media } = await row(ids[0]!);
    const { key, checksums } = media!;
    await database.query(
      `UPDATE assets SET media = media #- '{checksums,sha256}',
      sidecar_files = sidecar_files #- ARRAY[record_key, 'sha256'] WHERE id = $1`,
      [ids[0]],
    );
    await age(ids[0]!, 80);
    await scrubber({ cycle: 4000 }).round(stop);
    const { media: read, recordKey, sidecarFiles } = await row(ids[0]!);
    expect(read!.checksums).toEqual(checksums);
    expect(sidecarFiles[recordKey!]!.sha256).toBe(contentHash((await contentOf(scene.storage, recordKey!))!));

    const content = (await contentOf(scene.storage, key))!;
    const other = Buffer.alloc(content.length, 'y');
    await scene.storage.put(key, other);
    // As if the other bytes had the same CRC-32.
    await database.query(
      `UPDATE assets SET media = jsonb_set(media, '{checksums,crc32}', to_jsonb($2::text)) WHERE id = $1`,
      [ids[0], crc32(other).toString(16).padStart(8, '0')],
    );
    await database.query('DELETE FROM scrub');
    await age(ids[0]!, 80);
    await scrubber({ cycle: 4000 }).round(stop);
    await until('the repair', async () => (await contentOf(scene.storage, key))?.equals(content) === true);
    await scene.mirror.assetIn(ids[0]!, 'mirrored');
    expect((await row(ids[0]!)).media!.checksums).toEqual(checksums);
    await database.query(`DELETE FROM events WHERE kind = 'asset.damaged'`);
  });

  test('a damaged file and a missing record are repaired, and an event reports it', async () => {
    const id = ids[1]!;
    const { key } = await scene.mirror.asset(id);
    await damage(key);
    await scene.storage.remove(`${key}.asset.json`);
    await age(id, 50);
    await scrubber().round(stop);
    await until('the file', async () => (await contentOf(scene.storage, key))?.toString() === 'file 1');
    await until('the record', async () => (await scene.storage.head(`${key}.asset.json`)) !== undefined);
    await scene.mirror.quiet();
    const { rows } = await database.query(`SELECT * FROM events WHERE kind = 'asset.damaged'`);
    expect(rows).toMatchObject([{ asset_id: id, data: { repaired: true } }]);
    expect(rows[0].data.objects.map((object: { key: string }) => object.key).sort()).toEqual([
      key,
      `${key}.asset.json`,
    ]);
  });

  test('a superseded file is read back with its asset, and an event reports its damage', async () => {
    const { id, key } = await replacedFile();
    const { versions, scrub } = scene.mirror.store;
    const [version] = await versions.ofAsset(id);
    const { at } = version!.files[0]!;
    await damage(at);
    await age(id, 50);
    expect(await scrub.next([])).toMatchObject({ id, weight: 11 + version!.bytes + 2 ** 20 });
    await scrubber().round(stop);
    expect(await isFresh(id)).toBe(true);
    const { rows } = await database.query(`SELECT data FROM events WHERE kind = 'asset.damaged' AND asset_id = $1`, [
      id,
    ]);
    const text = expect.stringMatching(/CRC-32 .* was kept: the media of version .*, which cannot be fetched again/);
    const reason = expect.objectContaining({ code: 'wrong_checksum', checksum: 'CRC-32', kind: 'media' });
    expect(rows).toEqual([{ data: { objects: [{ key: at, text, reason }], repaired: false } }]);
    const { examples } = await scene.mirror.store.assurance.findings(undefined);
    expect(examples).toContainEqual(expect.objectContaining({ assetId: id, key: at }));
    expect(await contentOf(scene.storage, key)).toEqual(Buffer.from('another one'));
    const before = await scrub.sizes();
    await database.query('DELETE FROM asset_versions WHERE asset_id = $1', [id]);
    const { objects, bytes } = await scrub.sizes();
    // Media and record, and the record of the version.
    expect([before.objects - objects, before.bytes - bytes]).toEqual([3, version!.bytes]);
    await database.query('DELETE FROM assets WHERE id = $1', [id]);
  });

  test('a damaged file whose asset a worker is changing is read again soon, also if it has a superseded file', async () => {
    const { id, key } = await replacedFile();
    await damage(key);
    await database.query(`UPDATE assets SET queued_at = now(), lease_until = now() + interval '1 hour' WHERE id = $1`, [
      id,
    ]);
    await age(id, 50);
    await scrubber().round(stop);
    expect(await row(id)).toMatchObject({ unverifiableAt: null });
    expect(await isFresh(id)).toBe(false);
    await database.query('DELETE FROM asset_versions WHERE asset_id = $1', [id]);
    await database.query('DELETE FROM assets WHERE id = $1', [id]);
  });

  test('a damaged file for which another one waits for an operator is reported once, and only its record is repaired', async () => {
    const id = await uploaded('held back');
    const { key } = await scene.mirror.asset(id);
    await database.query(
      `INSERT INTO replacements (asset_id, company_id) SELECT id, company_id FROM assets WHERE id = $1`,
      [id],
    );
    await damage(key);
    const damaged = (await contentOf(scene.storage, key))!.toString();
    await age(id, 90);
    await scrubber().round(stop);
    const { rows } = await database.query(
      `SELECT data FROM events WHERE kind = 'asset.damaged' AND asset_id = '${id}'`,
    );
    expect(rows).toMatchObject([{ data: { repaired: false } }]);
    expect(await row(id)).toMatchObject({ state: 'mirrored', unverifiableAt: expect.any(Date) });

    await scene.storage.remove(`${key}.asset.json`);
    await age(id, 90);
    await database.query('UPDATE assets SET unverifiable_at = NULL WHERE id = $1', [id]);
    await database.query(`UPDATE scrub SET read_at = now() - interval '60 days'`);
    await scrubber().round(stop);
    await until('the record', async () => (await scene.storage.head(`${key}.asset.json`)) !== undefined);
    await scene.mirror.quiet();
    expect((await contentOf(scene.storage, key))?.toString()).toBe(damaged);
    await database.query('DELETE FROM assets WHERE id = $1', [id]);
    await database.query(`DELETE FROM events WHERE kind = 'asset.damaged'`);
  });

  test('a file that can neither be verified nor repaired is not read again before the next cycle', async () => {
    const id = await uploaded('soon gone');
    await damage((await scene.mirror.asset(id)).key);
    await database.query(`UPDATE assets SET state = 'gone' WHERE id = $1`, [id]);
    await age(id, 50);
    await age(ids[0]!, 40);
    await scrubber().round(stop);
    expect(await row(id)).toMatchObject({ state: 'gone', unverifiableAt: expect.any(Date) });
    await database.query(`UPDATE scrub SET read_at = now() - interval '60 days'`);
    await scrubber().round(stop);
    expect(await fresh()).toContain(0);
    const { scrub } = await scene.mirror.api('GET', '/status');
    expect(Date.now() - Date.parse(scrub.oldest)).toBeLessThan(3_600_000);
    await database.query('DELETE FROM assets WHERE id = $1', [id]);
  });

  test.each([new Error('the store answered 400'), new StorageUnavailable('the store denies access')])(
    'an object that cannot be read (%s) holds up no other, and its asset stays the oldest',
    async (refusal) => {
      const failing = scrubber();
      const [unreadable, other] = [ids[0]!, ids[3]!];
      const { key } = await scene.mirror.asset(unreadable);
      const { context } = scene.mirror.service;
      const storage = {
        ...context.storage,
        get: async (wanted: string) => {
          if (wanted === key) throw refusal;
          return context.storage.get(wanted);
        },
      };
      const broken = scrubber({ storage });
      await age(unreadable, 80);
      await age(other, 70);
      await broken.round(stop);
      expect(await fresh()).toEqual([1, 2, 3]);
      const { oldest } = await scene.mirror.store.scrub.progress();
      expect(oldest).toEqual((await row(unreadable)).verifiedAt);
      await database.query(`UPDATE scrub SET read_at = now() - interval '60 days'`);
      await failing.round(stop);
      expect(await isFresh(unreadable)).toBe(true);
    },
  );

  test('an asset with a sidecar that cannot be read stays the oldest', async () => {
    const id = ids[0]!;
    const record = `${(await scene.mirror.asset(id)).key}.asset.json`;
    const { context } = scene.mirror.service;
    const storage = {
      ...context.storage,
      get: async (wanted: string) => {
        if (wanted === record) throw new Error('the store answered 500');
        return context.storage.get(wanted);
      },
    };
    await age(id, 80);
    const before = (await row(id)).verifiedAt;
    await scrubber({ storage }).round(stop);
    expect((await row(id)).verifiedAt).toEqual(before);
    await database.query(`UPDATE scrub SET read_at = now() - interval '60 days'`);
    await scrubber().round(stop);
    expect(await isFresh(id)).toBe(true);
  });
});
