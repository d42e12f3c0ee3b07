// @module-tag slow
import { beforeEach, describe, expect, test } from 'vitest';
import { readCopyConfig } from '../../../src/config/config.ts';
import { StorageUnavailable } from '../../../src/floor/errors.ts';
import { rebuildFrom } from '../../../src/offline/rebuild.ts';
import { tombstones, versionKeys } from '../../../src/storage/keys.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import type { Store } from '../../../src/store/store.ts';
import { type RebuildProgress, rebuild } from '../../../src/verify/rebuild/rebuild.ts';
import { silent } from '../../store/records.ts';
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

  test('a rebuild pauses after each batch: of tombstones, of records and of versions', async () => {
    await put('a');
    await storage.put(`${tombstones}none`, 'x');
    await storage.put(`${versionKeys.prefix}x/20260131T120000000Z.json`, 'x');
    let pauses = 0;
    const pause = async () => void pauses++;
    const { signal } = new AbortController();
    const options = { onProblem: () => {}, pause, signal };
    await rebuild({ store, storage, thumbnails: { mirror: true } }, options);
    expect(pauses).toBe(3);
  });

  test('a rebuild counts all objects for its progress, and lists the bucket only once without', async () => {
    await put('a');
    let lists = 0;
    const listed: Storage = {
      ...storage,
      list: (prefix, options) => {
        if (prefix === '') lists++;
        return storage.list(prefix, options);
      },
    };
    const rebuilt = (onProgress?: (progress: RebuildProgress) => void) =>
      rebuild(
        { store, storage: listed, thumbnails: { mirror: true } },
        { onProblem: () => {}, onProgress, signal: new AbortController().signal },
      );
    expect(await rebuilt()).toMatchObject({ restored: 1, objects: 2, total: 2 });
    expect(lists).toBe(1);
    expect(await rebuilt(() => {})).toMatchObject({ known: 1, objects: 2, total: 2 });
    expect(lists).toBe(3);
  });

  test('rebuild reports and skips records that are invalid or belong to another asset', async () => {
    await put('good');
    await storage.put('acme/_/broken/a.asset.json', '{"version": 1,');
    await storage.put('acme/_/empty/a.asset.json', '');
    await put('later', { record: { version: 2 } });
    await put('nowhere', { record: { companyId: '' } });
    await storage.put('acme/_/copied/file.txt.asset.json', JSON.stringify(await put('original')));
    await put('negative', { media: { bytes: -1 } });
    const good = { key: 'acme/_/good/file.txt', bytes: 15 };
    await put('greedy', { record: { thumbnail: good } });
    await put('greedier', { record: { transcript: { state: 'mirrored', keys: [good.key] } } });
    const so = await fromBucket();
    expect(so).toMatchObject({ restored: 2, skipped: 8, pending: 0 });
    expect(problems.sort()).toEqual([
      expect.stringMatching(/broken\/a.asset.json: is not a record: it is not JSON/),
      expect.stringMatching(/copied.*it belongs to acme\/_\/original\/file.txt/),
      expect.stringMatching(/empty\/a.asset.json: is not a record: it is not JSON/),
      expect.stringMatching(/greedier.*it claims acme\/_\/good\/file.txt, which does not belong to/),
      expect.stringMatching(/greedy.*it claims acme\/_\/good\/file.txt, which does not belong to/),
      expect.stringMatching(/later.*is not a record: version: expected 1/),
      expect.stringMatching(/negative.*is not a record: media.bytes/),
      expect.stringMatching(/nowhere.*is not a record: companyId/),
    ]);
  });

  test('rebuild saves the mirror id last: until then, a service downloads nothing', async () => {
    await put('one');
    await storage.put('_mirror/id', 'the one before\n');
    const config = readCopyConfig(ground.environment);
    const stop = new AbortController();
    const report = { start: () => stop.abort(new Error('interrupted')), problem: () => {}, progress: () => {} };
    await expect(rebuildFrom(config, { log: silent, stop: stop.signal, report })).rejects.toThrow('interrupted');
    expect(await store.bucket.known()).toBeUndefined();
    const whole = { log: silent, stop: new AbortController().signal, report: { ...report, start: () => {} } };
    expect(await rebuildFrom(config, whole)).toMatchObject({ restored: 1 });
    expect(await store.bucket.known()).toBe('the one before');
  });

  test('rebuild skips a record that the database refuses, and restores the others', async () => {
    for (let i = 0; i < 5; i++) await put(`a${i}`);
    // Longer than an index takes.
    const long = Array.from({ length: 1900 }, (_, i) => String.fromCodePoint(0x4e00 + ((i * 7919) % 20_000))[0]).join(
      '',
    );
    await put('long', {
      record: { companyId: long.slice(0, 660), asset: { id: `${long.slice(0, 660)}`, size: 15, uploadDate: 1 } },
    });
    const so = await fromBucket();
    expect(so).toMatchObject({ restored: 5, skipped: 1 });
    expect(problems).toEqual([expect.stringMatching(/expected an id of at most 1000 bytes/)]);
  });

  test('rebuild skips a record that the store refuses, and reads one again after an outage', async () => {
    for (const id of ['refused', 'late', 'other']) await put(id);
    let outages = 1;
    const { signal } = new AbortController();
    const wrapped: Storage = {
      ...storage,
      async get(key, options) {
        if (key.includes('refused') || (key.includes('late') && outages-- > 0)) {
          throw new StorageUnavailable('the store denies access');
        }
        return storage.get(key, options);
      },
    };
    const options = { onProblem: (line: string) => void problems.push(line), signal };
    const result = await rebuild({ store, storage: wrapped, thumbnails: { mirror: true } }, options);
    expect(result).toMatchObject({ restored: 2, skipped: 1 });
    expect(problems).toEqual([expect.stringMatching(/refused.*could not be read: the store denies access/)]);
    const down = { ...wrapped, check: () => Promise.reject(new StorageUnavailable('the store is down')) };
    await expect(rebuild({ store, storage: down, thumbnails: { mirror: true } }, options)).rejects.toThrow('is down');
  });

  test('rebuild does not take a media file with the name and content of a record for a record', async () => {
    // Uploaded by somebody who wants it to be taken for the record of `victim`.
    const forged = await put('victim', { key: 'acme/_/attack/x', text: null });
    const text = JSON.stringify(forged);
    await put('attack', { key: 'acme/_/attack/x.asset.json', text });
    expect(await fromBucket()).toMatchObject({ restored: 1, skipped: 0 });
    expect(await store.assets.get('victim')).toBeUndefined();
    expect(await store.assets.get('attack')).toMatchObject({ state: 'mirrored' });
    expect(problems).toEqual([]);
  });

  test('rebuild reports records with a missing or different media file, and the file is downloaded again', async () => {
    await put('good');
    await put('missing', { text: null });
    await put('short', { media: { bytes: 5000 } });
    await put('other', { media: { etag: 'of another content', checksums: { crc32: '00000000' } } });
    await put('replaced', { record: { asset: { id: 'replaced', size: 99, uploadDate: 2 } } });
    expect(await fromBucket()).toMatchObject({ restored: 5, pending: 4, skipped: 0 });
    expect(problems.sort()).toEqual([
      'acme/_/missing/file.txt: is missing, and is fetched again',
      expect.stringMatching(/other.*differs from the content in its record/),
      expect.stringMatching(/replaced.*has \d+ bytes, but the asset has 99; it is fetched again/),
      expect.stringMatching(/short.*has 16 bytes, but its record says 5000; it is fetched again/),
    ]);
    expect(await store.assets.get('good')).toMatchObject({ state: 'mirrored', media: { version: '15:1' } });
    expect(await store.assets.get('other')).toMatchObject({
      state: 'pending',
      nextAt: expect.any(Date),
      recordKey: null,
      bytes: null,
      media: { version: '' },
    });
  });

  test('rebuild compares the content of a media file that has another ETag after a copy', async () => {
    await put('copied', { media: { etag: 'of the place before' } });
    expect(await fromBucket()).toMatchObject({ restored: 1, pending: 0 });
    const object = (await storage.head('acme/_/copied/file.txt'))!;
    // Its record is rewritten, with the ETag of this bucket.
    expect(await store.assets.get('copied')).toMatchObject({
      state: 'mirrored',
      recordKey: null,
      nextAt: expect.any(Date),
      media: { etag: object.etag ?? null, version: '17:1' },
    });
  });

  test('missing sidecars of restored assets are fetched again', async () => {
    const key = 'acme/_/clip/file.txt';
    await put('clip', {
      record: {
        transcript: { state: 'mirrored', keys: [`${key}.vtt`, `${key}.txt`] },
        thumbnail: { key: `${key}.thumbnail.jpg`, bytes: 3 },
      },
    });
    await storage.put(`${key}.vtt`, 'WEBVTT');
    await storage.put(`${key}.thumbnail.jpg`, 'jpg');
    expect(await fromBucket()).toMatchObject({ restored: 1 });
    expect(problems).toEqual([`${key}: its transcript is missing or has another length, and is fetched again`]);
    expect(await store.assets.get('clip')).toMatchObject({
      state: 'mirrored',
      nextAt: expect.any(Date),
      transcriptState: 'pending',
      transcriptKeys: [`${key}.vtt`],
      thumbnailState: 'mirrored',
      thumbnail: { bytes: 3 },
    });
  });

  test('sidecars of restored assets have the checksums of the record, if their length is right', async () => {
    const key = 'acme/_/summed/file.txt';
    const known = {
      bytes: 6,
      crc32: '3b2ad7ac',
      sha256: 'b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9',
    };
    await put('summed', {
      record: {
        transcript: { state: 'mirrored', keys: [`${key}.vtt`, `${key}.txt`] },
        sidecars: { [`${key}.vtt`]: known, [`${key}.txt`]: known, [`${key}.other`]: known },
      },
    });
    await storage.put(`${key}.vtt`, 'WEBVTT');
    await storage.put(`${key}.txt`, 'short');
    expect(await fromBucket()).toMatchObject({ restored: 1 });
    expect(problems).toEqual([`${key}: its transcript is missing or has another length, and is fetched again`]);
    const { transcriptKeys, sidecarFiles } = (await store.assets.get('summed'))!;
    expect({ transcriptKeys, sidecarFiles }).toEqual({
      transcriptKeys: [`${key}.vtt`],
      sidecarFiles: { [`${key}.vtt`]: { ...known, etag: null } },
    });
  });

  test('rebuild keeps the part of a transcript that is left after the rest was given up', async () => {
    const key = 'acme/_/partly/file.txt';
    await put('partly', { record: { transcript: { state: 'gave_up', keys: [`${key}.vtt`] } } });
    await storage.put(`${key}.vtt`, 'WEBVTT');
    expect(await fromBucket()).toMatchObject({ restored: 1 });
    expect(problems).toEqual([]);
    const transcript = { transcriptState: 'gave_up', transcriptKeys: [`${key}.vtt`] };
    expect(await store.assets.get('partly')).toMatchObject(transcript);
  });

  test.each(['a/first', 'z/first'])(
    'of two records of one asset, rebuild restores the last one, also if it is at %s',
    async (place) => {
      await put('twice', { key: 'm/file', record: { mirroredAt: '2026-01-01T00:00:00.000Z' } });
      await put('twice', { key: place, record: { mirroredAt: '2026-02-01T00:00:00.000Z' } });
      // In one batch, and one after the other.
      for (let round = 0; round < 2; round++) {
        expect(await fromBucket()).toMatchObject({ skipped: 1 });
        expect(problems.splice(0)).toEqual([expect.stringMatching(`belongs to ${place}, the other to m/file`)]);
        expect(await store.assets.get('twice')).toMatchObject({ media: { key: place } });
      }
    },
  );

  test('a second rebuild after an interruption restores all of thousands of records in one folder', {}, async () => {
    const count = kind.s3 ? 450 : 700;
    const names = Array.from({ length: count }, (_, i) => `asset-${i}`);
    const next = names.values();
    await Promise.all(
      Array.from({ length: 16 }, async () => {
        // All media files first, then all records.
        for (const id of next) await put(id, { key: `${id.replace('asset', 'flat/file')} ${id}` });
      }),
    );
    const stop = new AbortController();
    const broken = await fromBucket(stop.signal, ({ restored }) => {
      if (restored >= 200) stop.abort(new Error('Ctrl-C'));
    }).catch((error) => error);
    expect(broken).toMatchObject({ message: 'Ctrl-C' });
    const so = await fromBucket();
    expect(so.restored + so.known).toBe(count);
    expect(so.known).toBeGreaterThanOrEqual(200);
    expect(so.restored).toBeGreaterThan(0);
    expect(so).toMatchObject({ objects: count * 2, total: count * 2, pending: 0, skipped: 0 });
    expect((await store.counts.totals()).reduce((sum, row) => sum + row.count, 0)).toBe(count);
    expect(problems).toEqual([]);
  });
});
