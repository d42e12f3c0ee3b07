// @module-tag slow
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { chunksOf } from '../../src/library/index.ts';
import { newHttpLine } from '../support/http-line.ts';
import { grounds } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const MiB = 2 ** 20;
const size = 70 * MiB + 12_345;

function shaOf(seed: string, bytes: number): string {
  const hash = createHash('sha256');
  for (const chunk of chunksOf(seed, 0, bytes)) hash.update(chunk);
  return hash.digest('hex');
}

describe.each(grounds())('a large file ($name)', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene({ redis: kind.redis, s3: kind.s3, environment: { TRANSFER_STALL_TIMEOUT: '10s' } });
  });
  afterAll(() => scene?.close());

  const upload = (seed: string) => scene.upload({ content: { seed, size } });
  const shaAt = async (id: string) => {
    const hash = createHash('sha256');
    const { key } = await scene.mirror.asset(id);
    const body = await scene.storage.get(key);
    for await (const chunk of body!) hash.update(chunk);
    return hash.digest('hex');
  };
  const ranges = async (assetId: string) =>
    (await scene.admin.requests({ assetId, endpoint: 'media' })).map(({ range, status }) => `${status} ${range}`);

  test('a large file is transferred in parts of one version, and stored byte for byte', async () => {
    const id = await upload('whole');
    await scene.resync();
    const asset = await scene.mirror.assetIn(id, 'mirrored');
    expect(asset).toMatchObject({ bytes: size, variant: 'original', failedAttempts: [] });
    expect(await shaAt(id)).toBe(shaOf('whole', size));
    expect((await ranges(id)).toSorted()).toEqual(
      [
        '206 bytes=0-0',
        ...[0, 1, 2, 3].map((part) => `206 bytes=${part * 16 * MiB}-${(part + 1) * 16 * MiB - 1}`),
        `206 bytes=${64 * MiB}-`,
      ].toSorted(),
    );
  });

  test.each([
    ['a connection that drops', { cutAfter: 5 * MiB, times: 3 }],
    ['a connection that is reset', { cutAfter: 5 * MiB, reset: true, times: 3 }],
    ['a stall', { stallAfter: 5 * MiB, times: 2 }],
    ['links that expire', { expireLinks: true, skip: 2, times: 2 }],
    ['redirects', { redirect: 2 }],
    ['a library that fails for a moment', { status: 503, skip: 1, times: 2 }],
  ])('a large file is mirrored completely in spite of %s', async (name, fault) => {
    const id = await upload(name);
    await scene.admin.addFault({ endpoint: 'media', assetId: id, ...fault });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect(await shaAt(id)).toBe(shaOf(name, size));
    const sent = (await scene.admin.requests({ assetId: id, endpoint: 'media' })).length;
    // Only the interrupted parts were requested again.
    expect(sent).toBeLessThanOrEqual(6 + 8);
  });

  test('an attempt that has stored parts before the library fails is not counted', async () => {
    const id = await upload('progress');
    // Of the last part.
    await scene.admin.addFault({ endpoint: 'media', assetId: id, status: 503, skip: 5 });
    await scene.resync();
    await until('the attempt to end', async () => (await scene.mirror.asset(id))?.reason);
    await scene.admin.clearFaults();
    expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ bytes: size, failedAttempts: [] });
    expect(await shaAt(id)).toBe(shaOf('progress', size));
    const resumed = scene.mirror.lines.filter(({ event, assetId }) => event === 'transfer.resumed' && assetId === id);
    expect(resumed).toHaveLength(1);
  });

  test('an attempt that has stored parts before the library asks to wait begins a new row of waits', async () => {
    const id = await upload('asked to wait');
    await scene.admin.addFault({ endpoint: 'media', assetId: id, times: 1, retryAfter: 3 });
    await scene.resync();
    const waits = async () =>
      (await scene.query<{ waits: number }>(`SELECT waits FROM assets WHERE id = '${id}'`))[0]?.waits;
    await until('the first wait', async () => (await waits()) === 1);
    // The next wait would take hours if it were the eleventh in a row.
    await scene.query(`UPDATE assets SET waits = 10 WHERE id = '${id}'`);
    await scene.admin.addFault({ endpoint: 'media', assetId: id, times: 1, retryAfter: 1, skip: 5 });
    await until('the second wait', async () => (await waits()) === 1);
    await scene.mirror.assetIn(id, 'mirrored');
    expect(await shaAt(id)).toBe(shaOf('asked to wait', size));
  });

  test('a large file without ranges is transferred as one stream', async () => {
    const id = await upload('no ranges');
    await scene.admin.addFault({ endpoint: 'media', assetId: id, ignoreRange: true });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect(await shaAt(id)).toBe(shaOf('no ranges', size));
  });

  test('a large file whose ranges are ignored after the first is transferred as one stream', async () => {
    const id = await upload('ranges in words only');
    await scene.admin.addFault({ endpoint: 'media', assetId: id, ignoreRange: true, skip: 1 });
    await scene.resync();
    const asset = await scene.mirror.assetIn(id, 'mirrored');
    expect(asset).toMatchObject({ bytes: size });
    expect(await shaAt(id)).toBe(shaOf('ranges in words only', size));
  });

  test('a large file that is replaced during its transfer begins again, and no versions are mixed', async () => {
    const id = await upload('before');
    // The last parts arrive slowly enough for the change to come before them.
    await scene.admin.addFault({ endpoint: 'media', assetId: id, skip: 4, stallAfter: MiB, times: 4 });
    await scene.resync();
    await until('some parts', async () => (await ranges(id)).length >= 5);
    await scene.admin.changeAsset(id, { content: { seed: 'after', size: size + 1 } });
    await scene.resync();
    await until('the second version', async () => (await scene.mirror.asset(id)).bytes === size + 1);
    await scene.mirror.assetIn(id, 'mirrored');
    expect(await shaAt(id)).toBe(shaOf('after', size + 1));
  });

  test('a large file that fails leaves neither objects nor parts', async () => {
    const id = await upload('never');
    await scene.admin.addFault({ endpoint: 'media', assetId: id, skip: 1, status: 403 });
    await scene.resync();
    const { reason } = await scene.mirror.assetIn(id, 'failed');
    expect(reason.text).toMatch(/403/);
    expect(await scene.keys(id)).toEqual([]);
    expect(await scene.query('SELECT id FROM assets WHERE upload IS NOT NULL')).toEqual([]);
  });
});

const modern = inject('s3modern');

/** A scene whose store refuses requests with this method for uploads in parts. */
async function refusing(method: string, status: number, code: string) {
  const line = await newHttpLine(modern!.endpoint);
  line.set({
    on: (call) => call.method === method && call.url.includes('uploadId='),
    times: Number.POSITIVE_INFINITY,
    answer: { status, body: `<Error><Code>${code}</Code></Error>` },
  });
  const scene = await newScene({
    s3: modern,
    through: async (environment) => ({ ...environment, S3_ENDPOINT: line.endpoint }),
  });
  const close = () => scene.close().finally(() => line.close());
  return { scene, close, refused: () => line.calls.some(({ met }) => met) };
}

test.runIf(modern)('a large file fails with its reason although the store does not abort its upload', async () => {
  const { scene, close, refused } = await refusing('DELETE', 403, 'AccessDenied');
  try {
    const id = await scene.upload({ content: { seed: 'never', size } });
    await scene.admin.addFault({ endpoint: 'media', assetId: id, skip: 1, status: 403 });
    await scene.resync();
    const { reason } = await scene.mirror.assetIn(id, 'failed');
    expect(reason.text).toMatch(/403/);
    expect(refused()).toBe(true);
  } finally {
    await close();
  }
});

test.runIf(modern)('a large file that was interrupted begins again in a store without ListParts', async () => {
  const { scene, close } = await refusing('GET', 405, 'MethodNotAllowed');
  try {
    const id = await scene.upload({ content: { seed: 'interrupted', size } });
    await scene.admin.addFault({ endpoint: 'media', assetId: id, skip: 3, stallAfter: MiB });
    await scene.resync();
    await until('a part to be stored', async () => (await scene.mirror.store.assets.parts(id)).length > 0);
    await scene.admin.clearFaults();
    await scene.restart();
    expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ bytes: size });
    expect(await scene.ground.leftovers()).toEqual([]);
  } finally {
    await close();
  }
});
