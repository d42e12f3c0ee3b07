import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { contentHash } from '../support/content-hash.ts';
import { contentOf } from '../support/mirror.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { workerOf } from '../support/worker.ts';

const MiB = 2 ** 20;
const s3 = inject('s3');
const stores = [{ name: 'a directory', s3: undefined }, ...(s3 ? [{ name: `a bucket of ${s3.name}`, s3 }] : [])];

describe.each(stores)('the content hash of a file in $name', { timeout: 240_000 }, (kind) => {
  let stage: Stage;
  let worker: ReturnType<typeof workerOf>;
  let at: Awaited<ReturnType<Stage['company']>>;
  beforeAll(async () => {
    stage = await newStage({ s3: kind.s3 });
    worker = workerOf(stage);
    at = await stage.company();
  });
  afterAll(async () => {
    await worker?.close();
    await stage?.close();
  });

  async function listed(size: number): Promise<string> {
    const [id] = await stage.upload(at.companyId, 1, { content: { seed: String(Math.random()), size } });
    await stage.sync(at.connectionId, 'full');
    return id!;
  }
  /** The hashes in the database and in the record, and that of what is stored. */
  async function hashes(id: string) {
    const { media } = (await stage.store.assets.get(id))!;
    const record = JSON.parse((await contentOf(stage.ground.storage, `${media!.key}.asset.json`))!.toString());
    const stored = contentHash((await contentOf(stage.ground.storage, media!.key))!);
    return { known: media!.checksums.sha256, recorded: record.media.checksums.sha256, stored };
  }

  test.each([
    ['of one block', 10, 0],
    ['of several blocks', 40 * MiB + 7, 0],
    ['in parts that are not whole blocks', 21 * MiB + 7, 1],
  ])(
    'a file %s has its content hash in the database and in its record',
    { tags: 'slow' },
    async (_, size, attempts) => {
      const id = await listed(size);
      await stage.query('UPDATE assets SET attempts = $2 WHERE id = $1', [id, attempts]);
      await worker.work(id);
      const { known, recorded, stored } = await hashes(id);
      expect({ known, recorded }).toEqual({ known: stored, recorded: stored });
    },
  );

  test('a file that is read back with other bytes is not recorded, and is fetched again', {
    tags: 'slow',
  }, async () => {
    const id = await listed(21 * MiB + 7);
    await stage.query('UPDATE assets SET attempts = 1 WHERE id = $1', [id]);
    const { mirror, query } = stage;
    const { service } = mirror;
    const storage = {
      ...service.context.storage,
      get: async (key: string) =>
        key.includes(id) ? Readable.from([Buffer.from('other bytes')]) : service.context.storage.get(key),
    };
    const context = { ...service.context, storage };
    const misled = workerOf({ mirror: { ...mirror, service: { ...service, context } }, query });
    expect(await misled.work(id)).toMatchObject({
      outcome: 'attempt_failed',
      reason: { text: expect.stringMatching(/was read back with CRC-32 \w+, but \w+ was stored/) },
    });
    await misled.close();
    expect(await stage.store.assets.get(id)).toMatchObject({ media: null, mirroredAt: null, upload: null });
    await stage.admin.clearRequests();
    await worker.work(id);
    expect((await stage.admin.requests({ assetId: id, endpoint: 'media' })).length).toBeGreaterThan(0);
    const { known, recorded, stored } = await hashes(id);
    expect({ known, recorded }).toEqual({ known: stored, recorded: stored });
  });

  test('the content hash is right if a process died at any step, and another resumed with the stored parts', {
    tags: 'slow',
  }, async () => {
    // A part whose process has died is tried again for seconds, so each store has every other step.
    let step = kind.s3 ? 0 : -1;
    for (let died = true; died; ) {
      step += 2;
      const id = await listed(36 * MiB + 1);
      died = await worker.dieAt(id, step);
      while ((await stage.store.assets.get(id))!.state !== 'mirrored') await worker.work(id);
      const { known, recorded, stored } = await hashes(id);
      expect({ step, known, recorded }).toEqual({ step, known: stored, recorded: stored });
    }
    expect(step).toBeGreaterThan(10);
  });

  test('sidecars and records have the SHA-256 of their bytes', async () => {
    const id = await listed(10);
    await worker.work(id);
    const { sidecarFiles } = (await stage.store.assets.get(id))!;
    expect(Object.keys(sidecarFiles).length).toBeGreaterThan(0);
    for (const [key, { sha256 }] of Object.entries(sidecarFiles)) {
      const content = (await contentOf(stage.ground.storage, key))!;
      expect(sha256).toBe(createHash('sha256').update(content).digest('hex'));
    }
  });
});
