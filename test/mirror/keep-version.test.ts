import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import type { VersionRecord } from '../../src/mirror/keep-version.ts';
import type { AssetRecord } from '../../src/mirror/record.ts';
import { removeAbandoned } from '../../src/mirror/removal/expire-versions.ts';
import { versionKeys } from '../../src/storage/keys.ts';
import { measure } from '../../src/storage/meter.ts';
import type { AssetVersion } from '../../src/store/database/schema.ts';
import { contentOf } from '../support/mirror.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { workerOf } from '../support/worker.ts';

const s3 = inject('s3');
const stores = [
  { name: 'a directory', s3: undefined, versions: false },
  ...(s3 ? [{ name: `a bucket of ${s3.name}`, s3, versions: false }] : []),
  ...(s3 ? [{ name: `a bucket of ${s3.name} with versions`, s3, versions: true }] : []),
];
const spoken = (text: string) => ({ language: 'de', durationSec: 3, text, vtt: `WEBVTT\n\n${text}\n`, words: null });

describe.each(stores)('a superseded file in $name', ({ s3, versions }) => {
  let stage: Stage;
  let worker: ReturnType<typeof workerOf>;
  let at: Awaited<ReturnType<Stage['company']>>;
  beforeAll(async () => {
    stage = await newStage({ s3, versions });
    worker = workerOf(stage);
    at = await stage.company();
    // The tests replace more files than the usual limit, above which a company is held.
    await stage.mirror.api('PATCH', `/connections/${at.connectionId}`, { holdReplaced: '100%,0' });
  });
  afterAll(async () => {
    await worker?.close();
    await stage?.close();
  });

  const storage = () => stage.ground.storage;
  const jsonAt = async <T>(key: string): Promise<T | undefined> => {
    const content = await contentOf(storage(), key);
    return content && JSON.parse(content.toString());
  };
  const keysBelow = async (prefix: string) => (await Array.fromAsync(storage().list(prefix))).map(({ key }) => key);
  const versionsOf = (id: string): Promise<AssetVersion[]> => stage.store.versions.ofAsset(id);

  async function newFilm(text: string): Promise<string> {
    const [id] = await stage.upload(at.companyId, 1, {
      name: 'old.mp4',
      filename: 'old.mp4',
      mimeType: 'video/mp4',
      assetType: 'videos',
      thumbnail: true,
      hasTranscript: true,
      transcript: spoken(text),
      content: { text },
    });
    await stage.sync(at.connectionId, 'full');
    await worker.complete(id!);
    return id!;
  }
  async function replace(id: string, text: string, filename = 'new.mp4'): Promise<void> {
    await stage.admin.changeAsset(id, { content: { text }, filename, transcript: spoken(text) });
    await stage.sync(at.connectionId, 'full');
  }

  /** Whether the record describes a complete copy with this media. */
  async function isCurrent(id: string, name: string, text: string): Promise<boolean> {
    const key = `${at.companyId}/_/${id}/${name}`;
    const record = await jsonAt<AssetRecord>(`${key}.asset.json`);
    if (!record) return false;
    expect((await contentOf(storage(), key))?.toString()).toBe(text);
    for (const sidecar of record.transcript.keys) expect(await storage().head(sidecar)).toBeDefined();
    if (record.thumbnail) expect(await storage().head(record.thumbnail.key)).toBeDefined();
    return true;
  }
  /** Whether a version of the asset is complete in the bucket, according to its record there. */
  async function isKept(id: string, text: string): Promise<boolean> {
    const records = (await keysBelow(`${versionKeys.prefix}${id}/`)).filter((key) =>
      /^_mirror\/versions\/[^/]+\/[^/]+\.json$/.test(key),
    );
    for (const key of records) {
      const record = (await jsonAt<VersionRecord>(key))!;
      const roles = record.files.map(({ role }) => role);
      expect(roles).toEqual(['media', 'captions', 'text', 'transcript', 'thumbnail', 'record']);
      for (const file of record.files) {
        const { crc32 } = await measure((await storage().get(file.at, file))!);
        expect(crc32).toBe(file.crc32);
      }
      const [media] = record.files;
      const content = (await storage().get(media!.at, media))!;
      if (Buffer.concat(await Array.fromAsync(content)).toString() === text) return true;
    }
    return false;
  }

  test('a superseded file is kept with its sidecars and its record, byte for byte', { tags: 'slow' }, async () => {
    const id = await newFilm('first');
    const before = await stage.store.assets.get(id);
    const objects = new Map<string, Buffer>();
    for (const key of await keysBelow(`${at.companyId}/_/${id}/`)) objects.set(key, (await contentOf(storage(), key))!);
    expect(objects.size).toBe(6);
    await replace(id, 'second one');
    await worker.complete(id);

    const [version, ...more] = await versionsOf(id);
    expect(more).toEqual([]);
    expect(version).toMatchObject({
      assetId: id,
      companyId: at.companyId,
      mirroredAt: before!.mirroredAt,
      reason: { code: 'superseded', changed: ['size'] },
      media: before!.media,
      bytes: [...objects.values()].reduce((sum, { length }) => sum + length, 0),
    });
    expect(version!.files.map(({ key }) => key).sort()).toEqual([...objects.keys()].sort());
    for (const file of version!.files) {
      expect(Boolean(file.versionId)).toBe(versions);
      const content = Buffer.concat(await Array.fromAsync((await storage().get(file.at, file))!));
      expect(content.equals(objects.get(file.key)!)).toBe(true);
    }
    expect(await isCurrent(id, 'new.mp4', 'second one')).toBe(true);
    const now = await stage.store.assets.get(id);
    expect(now!.mirroredAt!.getTime()).toBeGreaterThanOrEqual(version!.replacedAt.getTime());
    expect(now!.keepingAt).toBeNull();

    await replace(id, 'third', 'new.mp4');
    await worker.complete(id);
    expect((await versionsOf(id)).map(({ media }) => media.bytes)).toEqual([10, 5]);
    expect(await isKept(id, 'first')).toBe(true);
    expect(await isKept(id, 'second one')).toBe(true);
    expect(await isCurrent(id, 'new.mp4', 'third')).toBe(true);
  });

  test('at each step at which its worker may die, the old file, its version or the new file is complete', {
    tags: 'slow',
  }, async () => {
    let steps = 0;
    for (let died = true; died; ) {
      const id = await newFilm('the good one');
      await replace(id, 'encrypted');
      died = await worker.dieAt(id, ++steps);
      const old = await isCurrent(id, 'old.mp4', 'the good one');
      const kept = await isKept(id, 'the good one');
      const next = await isCurrent(id, 'new.mp4', 'encrypted');
      expect({ steps, complete: old || kept }).toEqual({ steps, complete: true });
      // Before the old copy is touched, the version is complete.
      if (!old) expect({ steps, kept }).toEqual({ steps, kept: true });
      if (!died) expect(next).toBe(true);

      await worker.complete(id);
      expect(await isCurrent(id, 'new.mp4', 'encrypted')).toBe(true);
      expect(await isCurrent(id, 'old.mp4', 'the good one')).toBe(false);
      expect(await isKept(id, 'the good one')).toBe(true);
      const [version, ...more] = await versionsOf(id);
      expect(more).toEqual([]);
      const copies = version!.files.filter(({ versionId }) => !versionId).map(({ at }) => at);
      const record = versionKeys.record(id, version!.replacedAt);
      expect(await keysBelow(`${versionKeys.prefix}${id}/`)).toEqual([record, ...copies].sort());
    }
    expect(steps).toBeGreaterThan(12);
  });

  test('a version that was begun is removed if the library takes the change back', async () => {
    const id = await newFilm('kept after all');
    const { listed } = (await stage.store.assets.get(id))!;
    await replace(id, 'other');
    for (let step = 1; !(await stage.store.assets.get(id))!.keepingAt; step++) {
      expect(await worker.dieAt(id, step)).toBe(true);
    }
    // The step that saves the time is followed by the copies.
    await stage.admin.changeAsset(id, {
      content: { text: 'kept after all' },
      filename: 'old.mp4',
      uploadDate: listed.uploadDate as number,
    });
    await stage.sync(at.connectionId, 'full');
    await worker.complete(id);
    expect(await versionsOf(id)).toEqual([]);
    expect(await keysBelow(`${versionKeys.prefix}${id}/`)).toEqual([]);
    expect((await stage.store.assets.get(id))!.keepingAt).toBeNull();
    expect(await isCurrent(id, 'old.mp4', 'kept after all')).toBe(true);
  });

  test('a superseded file whose transcript is missing is kept without it, which is logged', async () => {
    const id = await newFilm('first');
    const key = (await keysBelow(`${at.companyId}/_/${id}/`)).find((each) => each.endsWith('.vtt'))!;
    await storage().remove(key);
    await replace(id, 'second one');
    await worker.complete(id);
    const [version] = await versionsOf(id);
    expect(version!.files.map(({ role }) => role)).toEqual(['media', 'text', 'transcript', 'thumbnail', 'record']);
    const lines = stage.mirror.lines.filter(({ event, assetId }) => event === 'version.not_kept' && assetId === id);
    expect(lines).toMatchObject([{ level: 'warn', key, role: 'captions' }]);
  });

  test('what is left of a version that was begun before its asset was gone is removed, and nothing else', {
    tags: 'slow',
  }, async () => {
    const id = await newFilm('gone meanwhile');
    const before = await keysBelow(`${at.companyId}/_/${id}/`);
    await replace(id, 'other');
    for (let step = 1; (await keysBelow(`${versionKeys.prefix}${id}/`)).length === 0; step++) {
      expect(await worker.dieAt(id, step)).toBe(true);
    }
    await stage.query('UPDATE assets SET lease_until = NULL WHERE id = $1', [id]);
    await stage.admin.removeAsset(id);
    await stage.sync(at.connectionId, 'full', { acceptGone: true });
    const other = await newFilm('first');
    await replace(other, 'second one');
    await worker.complete(other);
    const { log } = stage.mirror.service.context;
    const { signal } = new AbortController();
    const pass = (olderThanMs: number) =>
      removeAbandoned({ store: stage.store, storage: storage(), log }, { olderThanMs, signal });
    await pass(86_400_000);
    expect(await stage.store.assets.get(id)).toMatchObject({ state: 'gone', keepingAt: expect.any(Date) });
    await pass(0);
    expect(await keysBelow(`${versionKeys.prefix}${id}/`)).toEqual([]);
    expect((await stage.store.assets.get(id))!.keepingAt).toBeNull();
    expect(await keysBelow(`${at.companyId}/_/${id}/`)).toEqual(before);
    expect(await isKept(other, 'first')).toBe(true);
  });

  test('a version that was begun long ago is removed, and begun again', async () => {
    const id = await newFilm('first');
    const longAgo = new Date((await stage.store.now()) - 2 * 86_400_000);
    await stage.query('UPDATE assets SET keeping_at = $2 WHERE id = $1', [id, longAgo]);
    await storage().put(`${versionKeys.folder(id, longAgo)}old.mp4`, 'remains');
    await replace(id, 'second one');
    await worker.complete(id);
    const [version, ...more] = await versionsOf(id);
    expect(more).toEqual([]);
    expect(version!.replacedAt.getTime()).toBeGreaterThan(longAgo.getTime() + 86_400_000);
    expect(await keysBelow(versionKeys.folder(id, longAgo))).toEqual([]);
    expect(await isKept(id, 'first')).toBe(true);
  });

  test('the newest version stays the newest if the clock is set back between two replacements', {
    tags: 'slow',
  }, async () => {
    const id = await newFilm('first');
    await replace(id, 'second one');
    await worker.complete(id);
    await stage.query(`UPDATE asset_versions SET replaced_at = replaced_at + interval '2 days' WHERE asset_id = $1`, [
      id,
    ]);
    await replace(id, 'third');
    await worker.complete(id);
    expect((await versionsOf(id)).map(({ media }) => media.bytes)).toEqual([10, 5]);
    expect(await isKept(id, 'second one')).toBe(true);
  });

  test('a damaged file is not kept as a version', async () => {
    const id = await newFilm('good');
    const { media } = (await stage.store.assets.get(id))!;
    await storage().put(media!.key, 'damaged');
    await replace(id, 'next one');
    await worker.complete(id);
    expect(await versionsOf(id)).toEqual([]);
    expect(await keysBelow(`${versionKeys.prefix}${id}/`)).toEqual([]);
    expect(await isCurrent(id, 'new.mp4', 'next one')).toBe(true);
  });
});

test('with KEEP_VERSIONS=none a superseded file is removed', { tags: 'slow' }, async () => {
  const stage = await newStage({ environment: { KEEP_VERSIONS: 'none' } });
  const worker = workerOf(stage);
  try {
    const at = await stage.company();
    const [id] = await stage.upload(at.companyId, 1, { filename: 'old', content: { text: 'first' } });
    await stage.sync(at.connectionId);
    await worker.complete(id!);
    await stage.admin.changeAsset(id!, { content: { text: 'second' }, filename: 'new' });
    await stage.sync(at.connectionId, 'full');
    await worker.complete(id!);
    expect(await stage.store.versions.ofAsset(id!)).toEqual([]);
    const keys = (await Array.fromAsync(stage.ground.storage.list(''))).map(({ key }) => key);
    expect(keys.filter((key) => key !== '_mirror/id')).toEqual(
      ['new', 'new.asset.json'].map((name) => `${at.companyId}/_/${id}/${name}`),
    );
  } finally {
    await worker.close();
    await stage.close();
  }
});
