import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { Archived } from '../../src/floor/errors.ts';
import { probeS3 } from '../../src/storage/s3/probe/probe-s3.ts';
import { rebuild } from '../../src/verify/rebuild/rebuild.ts';
import { newBucket, openBucket } from '../storage/grounds.ts';
import { newStore } from '../store/records.ts';
import { ask } from '../support/database.ts';
import { newHttpLine } from '../support/http-line.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const s3 = inject('s3');
const endless = Number.POSITIVE_INFINITY;
const invalidState = {
  status: 403,
  body: '<Error><Code>InvalidObjectState</Code><StorageClass>GLACIER</StorageClass></Error>',
};

describe.skipIf(!s3)('media that the bucket has archived', () => {
  let line: Awaited<ReturnType<typeof newHttpLine>>;
  let scene: Scene;
  let id: string;
  let key: string;
  beforeAll(async () => {
    line = await newHttpLine(s3!.endpoint);
    const through = async () => ({ S3_ENDPOINT: line.endpoint });
    scene = await newScene({ s3: s3!, through });
    id = await scene.film();
    await scene.resync();
    await scene.mirror.quiet();
    await scene.checked();
    key = (await scene.mirror.asset(id)).key;
  });
  afterAll(async () => {
    await scene?.close();
    await line?.close();
  });

  const isMedia = ({ url }: { url: string }) => decodeURIComponent(url.split('?')[0]!).endsWith(`/${key}`);
  /** As a store answers about an object in an archive. */
  const archive = () =>
    line.set(
      { on: (call) => call.method === 'GET' && isMedia(call), times: endless, answer: invalidState },
      {
        on: (call) => call.method === 'HEAD' && isMedia(call),
        times: endless,
        addHeaders: { 'x-amz-storage-class': 'GLACIER' },
      },
    );
  const downloads = async () =>
    (await scene.admin.requests({ assetId: id })).filter(({ endpoint }) => endpoint === 'media').length;
  async function verify(how: object) {
    const run = await scene.mirror.api('POST', '/verify', how);
    return until('the verification to end', async () => {
      const now = await scene.mirror.api('GET', `/verify/${run.id}?limit=1000`);
      return ['done', 'failed'].includes(now.status) && now;
    });
  }

  test('archived media is no difference, is counted, and is not fetched again', async () => {
    archive();
    const before = await downloads();
    const { verifiedAt } = await scene.mirror.api('GET', `/assets/${id}`);
    const run = await verify({ deep: true, repair: true, all: true });
    expect(run).toMatchObject({ status: 'done', differences: 0, counts: { archived: 1, errors: 0, repaired: 0 } });
    expect(run.lines.find(({ key: at }: { key: string }) => at === key)).toMatchObject({
      mark: '=',
      text: 'the bucket has archived it; only its length was compared',
    });
    // The bytes were not read, so they are not verified.
    expect((await scene.mirror.api('GET', `/assets/${id}`)).verifiedAt).toBe(verifiedAt);
    await scene.mirror.quiet();
    expect(await downloads()).toBe(before);
  });

  test('the explanation of an asset says that its media is archived', async () => {
    archive();
    const { explanation } = await scene.mirror.api('GET', `/assets/${id}`);
    expect(explanation.join('\n')).toContain(
      `${key}: the bucket has archived it; only its length was compared. To read it, restore it there.`,
    );
  });

  test('archived media without an ETag in the database is found in the bucket, not fetched again', async () => {
    archive();
    const before = await downloads();
    const { store } = scene.mirror;
    await ask(scene.ground.environment.DATABASE_URL!, `UPDATE assets SET media = jsonb_set(media, '{etag}', 'null')`);
    const asset = (await store.assets.get(id))!;
    await store.contents.requestRepair(id, [{ kind: 'media', remedy: 'check' }]);
    await scene.mirror.quiet();
    expect((await store.assets.get(id))!.lease).toBeGreaterThan(asset.lease);
    expect(await downloads()).toBe(before);
    expect((await scene.mirror.asset(id)).state).toBe('mirrored');
  });

  test('archived media is restored by a rebuild, although its content cannot be compared', async () => {
    archive();
    // A copied bucket has other ETags: then the content would decide.
    const records = await newStore();
    const storage = scene.mirror.service.context.storage;
    const copied = {
      ...storage,
      async *list(prefix: string, options?: { signal?: AbortSignal }) {
        for await (const object of storage.list(prefix, options)) yield { ...object, etag: 'another' };
      },
    };
    const problems: string[] = [];
    const deps = { store: records.store, storage: copied, thumbnails: { mirror: true } };
    const options = { onProblem: (text: string) => problems.push(text) };
    const { signal } = new AbortController();
    expect(await rebuild(deps, { ...options, signal })).toMatchObject({ restored: 1, pending: 0 });
    expect(problems).toEqual([]);
    await records.close();
  });
});

describe.skipIf(!s3)('S3_STORAGE_CLASS', () => {
  test('S3_STORAGE_CLASS applies to media and its parts, and to nothing else', async () => {
    const line = await newHttpLine(s3!.endpoint);
    const ground = await newBucket(s3!);
    const storage = await openBucket(
      { ...s3!, endpoint: line.endpoint },
      { bucket: ground.bucket, storageClass: 'STANDARD' },
    );
    const classes: Record<string, unknown> = {};
    line.set({
      on({ method, url, headers }) {
        const path = new URL(url, line.endpoint).pathname;
        if (method === 'PUT' || method === 'POST')
          classes[path.split('/').slice(2).join('/')] = headers['x-amz-storage-class'];
        return false;
      },
      times: endless,
    });
    try {
      await storage.put('a/film.mp4', 'film', { media: true });
      await storage.put('a/film.mp4.vtt', 'captions');
      await storage.put('a/film.mp4.asset.json', '{}');
      const upload = await storage.uploads.begin('a/large.mp4', { bytes: 6 * 2 ** 20, media: true });
      await storage.uploads.abort(upload);
      expect(classes).toMatchObject({
        'a/film.mp4': 'STANDARD',
        'a/film.mp4.vtt': undefined,
        'a/film.mp4.asset.json': undefined,
        '_mirror/probe': undefined,
        'a/large.mp4': 'STANDARD',
      });
    } finally {
      await storage.close();
      await ground.clear();
      await line.close();
    }
  });

  test('the doctor reports a class that the store refuses, and leaves nothing', async () => {
    const ground = await newBucket(s3!);
    const { endpoint, region } = s3!;
    const at = { bucket: ground.bucket, prefix: '', endpoint, region, forcePathStyle: true } as const;
    const found = async (storageClass: string) =>
      (await Array.fromAsync(probeS3({ ...at, storageClass, checksums: 'auto', connections: 4 }))).find(
        ({ what }) => what === 'storage class',
      );
    expect(await found('STANDARD')).toMatchObject({ level: 'ok', found: 'media is stored as STANDARD' });
    expect(await found('NONSENSE')).toMatchObject({
      level: 'wrong',
      found: 'the store refuses the storage class NONSENSE',
      remedy: 'correct S3_STORAGE_CLASS',
    });
    expect(await ground.leftovers()).toEqual([]);
    await ground.clear();
  });

  test('a GET of an archived object fails with an error of its own, and the store stays usable', async () => {
    const line = await newHttpLine(s3!.endpoint);
    const ground = await newBucket(s3!);
    const storage = await openBucket({ ...s3!, endpoint: line.endpoint }, { bucket: ground.bucket });
    await storage.put('a', 'text');
    line.set({ on: ({ method, url }) => method === 'GET' && url.includes('/a'), times: endless, answer: invalidState });
    try {
      await expect(storage.get('a')).rejects.toThrow(Archived);
      expect(await storage.head('a')).toMatchObject({ bytes: 4 });
    } finally {
      await storage.close();
      await ground.clear();
      await line.close();
    }
  });
});
