import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import { chunksOf } from '../../src/library/index.ts';
import { sweepUploads } from '../../src/mirror/removal/sweep-uploads.ts';
import type { Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const MiB = 2 ** 20;
/** The sizes of a file of one PUT and of one in parts. */
export const sizes = { small: 3 * MiB + 7, large: 33 * MiB + 12_345 };

function shaOf(seed: string, bytes: number): string {
  const hash = createHash('sha256');
  for (const chunk of chunksOf(seed, 0, bytes)) hash.update(chunk);
  return hash.digest('hex');
}

/** The files and their records are complete, and nothing else remains. */
export async function expectWhole(scene: Scene, files: { id: string; seed: string; size: number }[], attempts = 0) {
  const { store } = scene.mirror;
  for (const { id, seed, size } of files) {
    const asset = await until(`${seed} to be mirrored`, async () => {
      const found = await store.assets.get(id);
      return found?.state === 'mirrored' && found.bytes === size && found.leaseUntil === null && found;
    });
    expect(asset.reason).toBeNull();
    expect(asset).toMatchObject({ upload: null, superseded: [], media: { bytes: size } });
    expect(await store.assets.parts(id)).toEqual([]);
    const hash = createHash('sha256');
    for await (const chunk of (await scene.storage.get(asset.media!.key))!) hash.update(chunk);
    expect(hash.digest('hex')).toBe(shaOf(seed, size));
    expect((await scene.record(id)).media).toMatchObject({ key: asset.media!.key, bytes: size });
    expect((await scene.keys(id)).toSorted()).toEqual([asset.media!.key, `${asset.media!.key}.asset.json`]);
    const failed = scene.mirror.lines.filter(
      ({ msg, assetId }) => assetId === id && msg === 'attempt failed, will retry',
    );
    expect(failed.length, JSON.stringify(failed)).toBeLessThanOrEqual(attempts);
  }
  // An upload whose start was never answered is found by its key.
  await sweepUploads({ store, storage: scene.mirror.service.context.storage }, { ageMs: -60_000, patienceMs: 0 });
  expect(await scene.ground.leftovers()).toEqual([]);
}
