// @module-tag slow
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { keysOf, richest } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';

const record = '.asset.json';

describe.each([richest()])('a listing of the bucket during work ($name)', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene(kind);
  });
  afterAll(async () => {
    await scene?.close();
  });

  /** Lists repeatedly until `done`. */
  async function watch(done: () => Promise<boolean>): Promise<void> {
    for (let last = false; !last; ) {
      last = await done();
      const keys = new Set(await keysOf(scene.storage));
      for (const key of keys) {
        if (key.endsWith(record)) {
          expect(keys, 'a record without its media').toContain(key.slice(0, -record.length));
        } else if (!keys.has(key + record)) {
          // Between the two writes a worker has it. If it has ended by now, the object is complete, or was the previous version.
          const asset = (await scene.mirror.store.assets.get(key.split('/')[2]!))!;
          const held = asset.leaseUntil !== null && asset.state === 'transferring';
          const whole = held || (await scene.storage.head(key + record)) || !(await scene.storage.head(key));
          expect(whole, `${key}: ${asset.state}`).toBeTruthy();
        }
      }
    }
  }

  test('a listing shows no record without its media, and media without a record only during a lease', async () => {
    const ids = await Promise.all(
      Array.from({ length: 24 }, (_, i) =>
        scene.upload({ name: `${i}.bin`, content: { seed: `${i}`, size: i === 0 ? 40 * 2 ** 20 : i * 9000 } }),
      ),
    );
    const settled = async () => {
      const { assets } = await scene.mirror.api('GET', '/status');
      return assets.byState.mirrored === ids.length;
    };
    await scene.resync();
    await watch(settled);

    // Replaced, each by a file of another length and name: the record is removed first and written last.
    const versions = async () =>
      (await Promise.all(ids.map((id) => scene.mirror.store.assets.get(id)))).every(
        (asset, i) => asset!.state === 'mirrored' && asset!.bytes === 5000 + i && asset!.superseded.length === 0,
      );
    for (const [i, id] of ids.entries()) {
      await scene.admin.changeAsset(id, { filename: `new ${i}.bin`, content: { seed: `new ${i}`, size: 5000 + i } });
    }
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { holdReplaced: '100%,0' });
    await scene.resync();
    await watch(versions);
    expect((await keysOf(scene.storage)).toSorted()).toEqual(
      ids.flatMap((id, i) => [`acme/_/${id}/new ${i}.bin`, `acme/_/${id}/new ${i}.bin${record}`]).toSorted(),
    );
  });
});
