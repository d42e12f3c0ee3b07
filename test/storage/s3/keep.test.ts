// @module-tag slow
import { ListObjectVersionsCommand, PutBucketVersioningCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { S3Server } from '../../support/services.ts';
import { bytesOf, collected, MiB, streaming } from '../bodies.ts';
import { keptObjects } from '../conformance/kept-objects.ts';
import { purgedObjects } from '../conformance/purged-objects.ts';
import { newBucket, openBucket } from '../grounds.ts';
import { locking, startLocking } from '../locking.ts';

for (const { name, there } of locking) if (!there) test.skip(`Kept objects are not tested: ${name} is not installed`);

describe.each(locking.filter(({ there }) => there))('$name', ({ start }) => {
  let place: Awaited<ReturnType<typeof startLocking>>;
  let server: S3Server;
  beforeAll(async () => {
    place = await startLocking(start);
    ({ server } = place);
  });
  afterAll(() => place?.stop());

  describe.each(['off', 'Enabled', 'Suspended'] as const)('with versions %s', (status) => {
    let ground: Awaited<ReturnType<typeof newBucket>>;
    beforeAll(async () => {
      ground = await newBucket(server, { prefix: 'below/a prefix' });
      if (status !== 'off') await setVersioning(ground, 'Enabled');
      if (status === 'Suspended') await setVersioning(ground, 'Suspended');
    });
    keptObjects(() => ground.storage);
    purgedObjects(() => ground.storage);
    test('an object has a copy of its own only where the bucket makes no versions', async () => {
      await ground.storage.put('here', 'text', { contentType: 'text/plain' });
      const kept = await ground.storage.keep('here', 'there');
      expect(kept?.key).toBe(status === 'Enabled' ? 'here' : 'there');
      expect((await ground.storage.head('there')) !== undefined).toBe(status !== 'Enabled');
    });
  });

  test('an object from before versions were turned on is kept as a copy', async () => {
    const ground = await newBucket(server);
    await ground.storage.put('early', 'before versions');
    await setVersioning(ground, 'Enabled');
    const kept = (await ground.storage.keep('early', 'copy'))!;
    expect(kept).toMatchObject({ key: 'copy' });
    await ground.storage.put('early', 'after');
    expect((await collected((await ground.storage.get(kept.key, kept))!)).toString()).toBe('before versions');
  });

  test('an object that is too large for one copy is copied in parts, with its metadata', async () => {
    const ground = await newBucket(server);
    const storage = await openBucket(server, { bucket: ground.bucket, largestCopy: 5 * MiB });
    const bytes = bytesOf(12 * MiB + 1);
    for (const [key, options] of [
      ['whole', { bytes: bytes.length }],
      ['parts', {}],
    ] as const) {
      await storage.put(key, streaming(bytes), { ...options, contentType: 'video/mp4', metadata: { 'asset-id': 'x' } });
      const kept = (await storage.keep(key, `copy of ${key}`))!;
      expect(bytes.equals(await collected((await storage.get(kept.key))!))).toBe(true);
      const { Versions } = await ground.raw.send(
        new ListObjectVersionsCommand({ Bucket: ground.bucket, Prefix: kept.key }),
      );
      expect(Versions).toMatchObject([{ Size: bytes.length }]);
      expect(await ground.leftovers()).toEqual([]);
    }
    await storage.close();
  });
});

async function setVersioning(ground: Awaited<ReturnType<typeof newBucket>>, Status: 'Enabled' | 'Suspended') {
  await ground.raw.send(new PutBucketVersioningCommand({ Bucket: ground.bucket, VersioningConfiguration: { Status } }));
}
