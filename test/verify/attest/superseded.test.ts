// @module-tag slow
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, inject, test } from 'vitest';
import { signingKey } from '../../../src/floor/signing.ts';
import { contentOf } from '../../support/mirror.ts';
import { newStage } from '../../support/stage.ts';
import { attested, first, replacedAsset, second, verified, write } from './copies.ts';

test('a superseded file that is missing is found, unless it has expired', async () => {
  const stage = await newStage();
  try {
    const at = stage.ground.environment.STORAGE_URL!.slice('file://'.length);
    const id = await replacedAsset(stage);
    const key = signingKey(randomBytes(32));
    await write(stage, first, [key]);
    expect((await attested(at)).so).toMatchObject({ problems: 0, objects: 4 });
    expect(await verified(at)).toMatchObject({ code: 0 });
    const [version] = await stage.store.versions.ofAsset(id);
    const kept = version!.files.find(({ role }) => role === 'media')!.at;
    await stage.ground.storage.remove(kept);
    const missing = [`missing after ${first}: ${kept}`];
    expect((await attested(at)).problems).toEqual(missing);
    expect((await verified(at)).problems).toEqual(missing);
    await write(stage, second, [key], 1);
    expect((await attested(at)).problems).toEqual([`unproven after ${second}: ${kept}`]);
    expect((await verified(at)).problems).toEqual([`unproven after ${second}: ${kept}`]);
  } finally {
    await stage.close();
  }
});

const s3 = inject('s3');
test.runIf(s3)('a download of a bucket with versions is proven without its superseded versions', async () => {
  const stage = await newStage({ s3, versions: true });
  const path = await mkdtemp(join(tmpdir(), 'asset-mirror-download-'));
  try {
    const id = await replacedAsset(stage);
    const [version] = await stage.store.versions.ofAsset(id);
    expect(version!.files[0]!.versionId).toBeDefined();
    const key = signingKey(randomBytes(32));
    await write(stage, first, [key]);
    const { storage } = stage.ground;
    for await (const object of storage.list('')) {
      await mkdir(dirname(join(path, object.key)), { recursive: true });
      await writeFile(join(path, object.key), (await contentOf(storage, object.key))!);
    }
    expect((await attested(path, key.keyId)).so).toMatchObject({ problems: 0, unproven: 0, objects: 2 });
    expect(await verified(path, key.keyId)).toMatchObject({ problems: [], code: 0 });
  } finally {
    await rm(path, { recursive: true });
    await stage.close();
  }
});
