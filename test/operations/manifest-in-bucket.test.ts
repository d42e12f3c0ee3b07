import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { manifestInBucket } from '../../src/operations/assurance/manifest-in-bucket.ts';
import type { Storage } from '../../src/storage/storage.ts';

const link = { number: 7, envelope: 'signed\n' };
const found = (get: Storage['get']) => manifestInBucket({ get } as Storage, link);

test('the manifest in the bucket is compared with the one that was written', async () => {
  const keys: string[] = [];
  const get = async (key: string) => {
    keys.push(key);
    return Readable.from([Buffer.from('signed\n')]);
  };
  expect(await found(get)).toBe('same');
  expect(keys).toEqual(['_mirror/manifests/00000007.json']);
  expect(await found(async () => Readable.from([Buffer.from('forged\n')]))).toBe('different');
  expect(await found(async () => undefined)).toBe('missing');
});

test('a bucket that fails makes the answer unknown, and no error', async () => {
  expect(await found(() => Promise.reject(new Error('connection refused')))).toBe('unknown');
});

test('the manifest is unknown after some seconds if the bucket never answers', { tags: 'slow' }, async () => {
  expect(await found(() => new Promise(() => {}))).toBe('unknown');
});
