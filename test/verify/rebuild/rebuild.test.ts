// @module-tag slow
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readCopyConfig } from '../../../src/config/config.ts';
import { StorageUnavailable } from '../../../src/floor/errors.ts';
import { rebuildFrom } from '../../../src/offline/rebuild.ts';
import { tombstones, versionKeys } from '../../../src/storage/keys.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { type Rebuilding, rebuild } from '../../../src/verify/rebuild/rebuild.ts';
import { running, silent } from '../../store/records.ts';
import { ask, newDatabase } from '../../support/database.ts';
import { grounds, keysOf, newGround, richest } from '../../support/mirror.ts';
import { freePort } from '../../support/ports.ts';
import { newScene, type Scene } from '../../support/scene.ts';
import { spawned } from '../../support/spawned.ts';
import { connectAs } from '../../support/stage.ts';
import { until } from '../../support/until.ts';

const run = promisify(execFile);
const minutes = (n: number) => n * 60_000;

/** Runs the command, without the settings of a library; returns its output and exit code. */
async function command(scene: Scene, ...words: string[]): Promise<{ code: number; output: string }> {
  const env = { ...spawned, ...scene.ground.environment };
  const done = await run(process.execPath, ['src/main.ts', ...words], { env }).catch((error) => error);
  return { code: done.code ?? 0, output: `${done.stdout}${done.stderr}` };
}

describe.each(grounds())('a lost database ($name)', { timeout: minutes(5) }, (kind) => {
  let scene: Scene;
  const databases: { drop(): Promise<void> }[] = [];
  const ids: string[] = [];

  beforeEach(async () => {
    scene = await newScene(kind);
    ids.length = 0;
    const inner = { version: 1, companyId: 'acme', asset: { id: 'x' }, media: { key: 'report' } };
    ids.push(
      await scene.upload({ name: 'one.txt', mimeType: 'text/plain' }),
      await scene.upload({
        name: 'report.asset.json',
        mimeType: 'application/json',
        content: { text: JSON.stringify(inner) },
      }),
      await scene.upload({ name: 'large.bin', content: { seed: 'large', size: 40 * 2 ** 20 } }),
      await scene.film(),
      await scene.upload({ name: 'picture.png', mimeType: 'image/png', assetType: 'photography', thumbnail: true }),
    );
    await scene.resync();
    await scene.mirror.quiet();
  });
  afterEach(async () => {
    await scene.close();
    for (const database of databases.splice(0)) await database.drop();
  });

  /** The assets of the database, without connection, first sync and times of checks. */
  async function contents(store: Store) {
    const rows = await Promise.all(ids.map((id) => store.assets.get(id)));
    const ofTheMoment =
      'connectionId syncId lease revision firstSeenAt mirroredAt settledAt verifiedAt nextAt thumbnailState sidecarFiles'.split(
        ' ',
      );
    return rows.map((row) =>
      JSON.parse(JSON.stringify(row, (key, value) => (ofTheMoment.includes(key) || key === 'expiresAt' ? 0 : value))),
    );
  }

  async function loseTheDatabase(): Promise<void> {
    await scene.mirror.stop();
    const database = await newDatabase({ empty: true });
    databases.push(database);
    scene.ground.environment.DATABASE_URL = database.url;
  }

  const downloads = async () =>
    (await scene.admin.requests()).filter(({ endpoint }) => endpoint === 'media' || endpoint === 'mp4');

  test('rebuild restores all records, and a later connect downloads nothing again', async () => {
    const before = await contents(scene.mirror.store);
    const keys = await keysOf(scene.storage);
    await loseTheDatabase();
    const first = await command(scene, 'rebuild', '--json');
    expect(first.code, first.output).toBe(0);
    expect(JSON.parse(first.output)).toMatchObject({ restored: 5, known: 0, pending: 0, skipped: 0, problems: [] });
    const again = await command(scene, 'rebuild');
    expect(again.code, again.output).toBe(0);
    expect(again.output).toMatch(/0 assets restored \(5 already known\)/);

    await scene.admin.clearRequests();
    await scene.restart();
    const { mirror } = scene;
    expect(await contents(mirror.store)).toEqual(before);
    expect((await mirror.store.assets.get(ids[0]!))?.connectionId).toBeNull();
    expect(await mirror.asset(ids[0]!)).toMatchObject({ state: 'mirrored', connectionId: null });
    expect(await keysOf(scene.storage)).toEqual(keys);

    const connectionId = await mirror.connect();
    await mirror.api('POST', `/connections/${connectionId}/resync`, { mode: 'full' });
    await until(
      'all to be the connection’s',
      async () => (await mirror.api('GET', `/connections/${connectionId}`)).counts.byState.mirrored === ids.length,
    );
    await mirror.quiet();
    expect(await downloads()).toEqual([]);
    expect(await contents(mirror.store)).toEqual(before);
    expect((await mirror.api('GET', `/connections/${connectionId}`)).companies).toMatchObject([{ name: 'Acme' }]);

    const fresh = await scene.upload({ name: 'fresh.bin', uploadDate: Date.now() });
    await mirror.api('POST', `/connections/${connectionId}/resync`, { mode: 'incremental' });
    await mirror.assetIn(fresh, 'mirrored');
    expect((await downloads()).map(({ assetId }) => assetId ?? fresh)).toEqual([fresh]);
  });

  test('a service with a new database refuses the bucket until rebuild has run', async () => {
    const keys = await keysOf(scene.storage);
    await loseTheDatabase();
    await scene.admin.clearRequests();
    await scene.restart();
    const { mirror } = scene;
    const { bucket } = await mirror.api('GET', '/status');
    expect(bucket).toMatchObject({
      ok: false,
      reason: expect.stringMatching(/`asset-mirror rebuild` restores the records/),
    });
    const connectionId = await connectAs(mirror, scene.library.users[0]!.id);
    await until(
      'the listing to be known',
      async () => (await mirror.api('GET', '/status')).assets.byState.pending === 5,
    );

    const { code, output } = await command(scene, 'rebuild', '--json');
    expect(code, output).toBe(0);
    expect(JSON.parse(output)).toMatchObject({ restored: 5, skipped: 0 });
    await mirror.quiet();
    expect((await mirror.api('GET', `/connections/${connectionId}`)).counts.byState.mirrored).toBe(5);
    expect(await downloads()).toEqual([]);
    expect(await keysOf(scene.storage)).toEqual(keys);
    await until('the service to notice', async () => (await mirror.api('GET', '/status')).bucket.ok);
  });
});

describe.each([richest()])('a rebuild of records ($name)', { timeout: minutes(5) }, (kind) => {
  let ground: Awaited<ReturnType<typeof newGround>>;
  let store: Store;
  let storage: Storage;
  const problems: string[] = [];
  beforeEach(async () => {
    ground = await newGround({ port: await freePort(), s3: kind.s3 });
    storage = ground.storage;
    store = await openStore({ url: ground.environment.DATABASE_URL!, log: silent });
    problems.length = 0;
  });
  afterEach(async () => {
    await store.close();
    await ground.clear();
  });

  const fromBucket = (signal = new AbortController().signal, onProgress?: (progress: Rebuilding) => void) =>
    rebuild(
      { store, storage, thumbnails: { mirror: true } },
      { onProblem: (line) => problems.push(line), onProgress, signal },
    );

  /** A media file and its record, with optional irregularities. */
  async function put(
    id: string,
    options: { key?: string; text?: string | null; record?: object; media?: object } = {},
  ) {
    const { key = `acme/_/${id}/file.txt`, text = `content of ${id}` } = options;
    const bytes = Buffer.from(text ?? `content of ${id}`);
    const stored = text === null ? undefined : await storage.put(key, bytes);
    const record = {
      version: 1,
      companyId: 'acme',
      asset: { id, name: id, size: bytes.length, uploadDate: 1, status: 'ready' },
      media: {
        key,
        bytes: bytes.length,
        variant: 'original',
        checksums: { crc32: crc32(bytes).toString(16).padStart(8, '0') },
        etag: stored?.etag ?? null,
        ...options.media,
      },
      transcript: { state: 'none', keys: [] },
      thumbnail: null,
      mirroredAt: '2026-01-31T00:00:00.000Z',
      ...options.record,
    };
    await storage.put(`${key}.asset.json`, JSON.stringify(record));
    return record;
  }

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
    const rebuilt = (onProgress?: (progress: Rebuilding) => void) =>
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
    expect(problems).toEqual([`${key}: its transcript is missing, and is fetched again`]);
    expect(await store.assets.get('clip')).toMatchObject({
      state: 'mirrored',
      nextAt: expect.any(Date),
      transcriptState: 'pending',
      transcriptKeys: [`${key}.vtt`],
      thumbnailState: 'mirrored',
      thumbnail: { bytes: 3 },
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
