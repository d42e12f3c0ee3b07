// @module-tag slow
import { beforeEach, describe, expect, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import type { Store } from '../../../src/store/store.ts';
import { running } from '../../store/records.ts';
import { ask } from '../../support/database.ts';
import { richest } from '../../support/mirror.ts';
import { newRebuildGround, type RebuildGround } from './rebuild-ground.ts';

const minutes = (n: number) => n * 60_000;

describe.each([richest()])('a rebuild of records ($name)', { timeout: minutes(5) }, (kind) => {
  let ground: RebuildGround['ground'];
  let store: Store;
  let storage: Storage;
  let problems: string[];
  let fromBucket: RebuildGround['fromBucket'];
  let put: RebuildGround['put'];
  beforeEach(async () => {
    const made = await newRebuildGround(kind.s3);
    ({ ground, store, storage, problems, fromBucket, put } = made);
    return made.close;
  });

  describe('after a backup was restored', () => {
    const key = 'acme/_/film/file.txt';
    const transcript = { state: 'mirrored', keys: [`${key}.vtt`, `${key}.txt`] };
    const film = async (text: string, mirroredAt: string, more: object = {}) => {
      const asset = { id: 'film', name: text, size: text.length, uploadDate: 1, status: 'ready', ...more };
      await storage.put(`${key}.vtt`, `WEBVTT ${text}`);
      await storage.put(`${key}.txt`, text);
      return put('film', { key, text, record: { asset, mirroredAt, transcript } });
    };
    const query = (text: string) => ask(ground.environment.DATABASE_URL!, text);
    let connectionId: string;

    /** What a backup has: an asset that workers have leased before, and whose transcript was read for search. */
    beforeEach(async () => {
      await film('first', '2026-01-01T00:00:00.000Z', { projectId: 'p' });
      await fromBucket();
      ({ connectionId } = await running(store, 'acme'));
      await query(`UPDATE assets SET lease = 3, connection_id = '${connectionId}', next_at = NULL`);
      await query('UPDATE transcripts SET due_at = NULL');
    });

    test('rebuild takes the newer file of an asset from the bucket, also with the same name', {}, async () => {
      await query(`INSERT INTO holds (kind, id, held_by) VALUES ('project', 'p', 'x')`);
      await query(`INSERT INTO replacements (asset_id, company_id) VALUES ('film', 'acme')`);
      const { media } = await film('second', '2026-01-02T00:00:00.000Z', { tags: ['new'] });
      expect(await fromBucket()).toMatchObject({ restored: 1, known: 0, pending: 0, skipped: 0 });
      expect(problems).toEqual([]);
      expect(await store.assets.get('film')).toMatchObject({
        state: 'mirrored',
        connectionId,
        lease: 4,
        name: 'second',
        size: 6,
        listed: { tags: ['new'] },
        media: { bytes: 6, checksums: media.checksums },
        bytes: 6,
        mirroredAt: new Date('2026-01-02'),
        transcriptState: 'mirrored',
        transcriptKeys: transcript.keys,
      });
      expect(await query('SELECT count(*)::int AS due FROM transcripts WHERE due_at IS NOT NULL')).toEqual([
        { due: 1 },
      ]);
      expect(await query('SELECT * FROM replacements')).toEqual([]);
      // It has left a protected project.
      expect(await store.removals.isProtected('film')).toBe(true);
      // A change is shown when no older transaction of the server is open any more, also of another database.
      await expect.poll(() => store.changes.page(undefined, 10)).toMatchObject({ changes: [{ kind: 'replaced' }] });
      expect(await fromBucket()).toMatchObject({ restored: 0, known: 1 });
      expect(await store.counts.totals()).toMatchObject([{ state: 'mirrored', count: 1 }]);
    });

    test('rebuild asks the library again about a newer file of an asset that was queued', async () => {
      await query(`UPDATE assets SET state = 'pending', size = 7, next_at = now() + interval '1 day', queued_at = now(),
        listed = '{"id": "film", "size": 7}'`);
      await film('second', '2026-01-02T00:00:00.000Z');
      expect(await fromBucket()).toMatchObject({ restored: 1 });
      const asset = await store.assets.get('film');
      expect(asset).toMatchObject({ state: 'mirrored', size: 6, listed: { size: 7 } });
      expect(asset!.nextAt!.getTime()).toBeLessThan(Date.now() + minutes(1));
    });

    test.each([
      ['is older', 'other', '2025-12-31T00:00:00.000Z', 'next_at = NULL'],
      ['is of the same file', 'first', '2026-01-02T00:00:00.000Z', 'next_at = NULL'],
      ['is of a leased asset', 'other', '2026-01-02T00:00:00.000Z', `lease_until = now() + interval '1 minute'`],
    ])('an asset keeps its file if the record in the bucket %s', async (_, text, mirroredAt, set) => {
      await query(`UPDATE assets SET ${set}`);
      const before = await store.assets.get('film');
      await film(text, mirroredAt, { projectId: 'p' });
      expect(await fromBucket()).toMatchObject({ restored: 0, known: 1 });
      expect(await store.assets.get('film')).toEqual(before);
      expect(await query('SELECT count(*)::int AS due FROM transcripts WHERE due_at IS NOT NULL')).toEqual([
        { due: 0 },
      ]);
    });
  });
});
