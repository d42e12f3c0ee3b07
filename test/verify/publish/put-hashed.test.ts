import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { StorageUnavailable } from '../../../src/floor/errors.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { putHashed } from '../../../src/verify/publish/put-hashed.ts';

const { signal } = new AbortController();
const lines = () => Readable.from(Array.from({ length: 100_000 }, (_, n) => `line ${n}\n`));
const full = () => new StorageUnavailable('the disk is full');

test('a stream is stored gzipped, with the size and SHA-256 of its stored bytes', { tags: 'slow' }, async () => {
  let stored = Buffer.alloc(0);
  const put = async (_key: string, body: Parameters<Storage['put']>[1]) => {
    stored = Buffer.concat(await Array.fromAsync(body as Readable));
    return {} as never;
  };
  const { bytes, sha256 } = await putHashed({ put }, 'a.jsonl.gz', lines(), { signal });
  expect(bytes).toBe(stored.length);
  expect(sha256).toBe(createHash('sha256').update(stored).digest('hex'));
  expect(gunzipSync(stored).toString()).toMatch(/^line 0\n.*line 99999\n$/s);
});

test.each([
  [
    'in the middle of the body',
    async (body: Readable) => {
      for await (const _ of body) break;
      // Cleans up before it fails.
      await setImmediate();
      throw full();
    },
  ],
  ['before it has read the body', async () => Promise.reject(full())],
])('the error of a store that fails %s is reported, and no error of a stream', async (_, fail) => {
  const put = (_key: string, body: Parameters<Storage['put']>[1]) => fail(body as Readable) as never;
  await expect(putHashed({ put }, 'a.jsonl.gz', lines(), { signal })).rejects.toThrow('the disk is full');
});

test('the error of a source is reported, and stops the store', async () => {
  const source = Readable.from(
    (async function* () {
      yield 'line 0';
      throw new Error('the database does not answer');
    })(),
  );
  const put = async (_key: string, body: Parameters<Storage['put']>[1]) => {
    await Array.fromAsync(body as Readable);
    return {} as never;
  };
  await expect(putHashed({ put }, 'a.json', source, { signal })).rejects.toThrow('the database does not answer');
});
