import { expect, inject, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import { newHttpLine } from '../../support/http-line.ts';
import { newBucket, openBucket } from '../grounds.ts';

const purged = async (storage: Storage, at: string, options = {}) =>
  (await Array.fromAsync(storage.purge(at, options))).map(({ key, bytes }) => `${key} ${bytes}`).sort();

test.skipIf(!inject('s3'))('purge of a bucket that never had versions needs no permission for versions', async () => {
  const line = await newHttpLine(inject('s3')!.endpoint);
  const ground = await newBucket(inject('s3')!);
  const open = () => openBucket({ ...inject('s3')!, endpoint: line.endpoint }, { bucket: ground.bucket });
  const denied = (asks: RegExp) => ({
    on: ({ url }: { url: string }) => asks.test(url),
    times: Number.POSITIVE_INFINITY,
    answer: { status: 403, body: '<Error><Code>AccessDenied</Code></Error>' },
  });
  const storage = await open();
  await storage.put('c/a/film', 'film');
  line.set(denied(/[?&]versions|versionId=/));
  expect(await purged(storage, 'c/a/')).toEqual(['c/a/film 4']);
  expect(await storage.head('c/a/film')).toBeUndefined();
  // If the store does not say, older versions could stay.
  const unsure = await open();
  line.set(denied(/[?&](versions|versioning)|versionId=/));
  await expect(purged(unsure, 'c/a/')).rejects.toThrow(/denies access/);
  await storage.close();
  await unsure.close();
  await ground.clear();
  await line.close();
});
