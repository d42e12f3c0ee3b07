// @module-tag slow
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { UploadLost } from '../../../src/storage/storage.ts';
import { asks, internalError, type Trouble } from '../../support/http-line.ts';
import { bytesOf, MiB, streaming } from '../bodies.ts';
import { openBucket } from '../grounds.ts';
import { type BehindLine, newBucketBehindLine } from './behind-line.ts';

const server = inject('s3modern') ?? inject('s3');
if (!server) test.skip('S3 is not tested: no server is installed');

const always = Number.POSITIVE_INFINITY;
const error = (status: number, code: string) => ({ status, body: `<Error><Code>${code}</Code></Error>` });

describe.runIf(server)('a store with habits of its own', () => {
  let place: BehindLine;
  let { ground, line, storage } = {} as BehindLine;
  beforeEach(async () => {
    place = await newBucketBehindLine(server!);
    ({ ground, line, storage } = place);
  });
  afterEach(() => place?.close());
  const isTrailer: Trouble['on'] = ({ headers }) =>
    headers['x-amz-content-sha256'] === 'STREAMING-UNSIGNED-PAYLOAD-TRAILER';
  const ofVersion: Trouble['on'] = ({ url }) => url.includes('versionId=');

  test('to remove an object that a store does not have is no error, also if the store answers 404', async () => {
    line.set({ on: ({ method }) => method === 'DELETE', times: always, answer: error(404, 'NoSuchKey') });
    await storage.remove('nothing');
    await storage.check();
    line.set({ on: ({ method }) => method === 'DELETE', times: always, answer: error(404, 'NoSuchBucket') });
    await expect(storage.remove('nothing')).rejects.toThrow(/bucket does not exist/);
  });

  test('a store that refuses the signature of a trailing checksum is written with MD5', async () => {
    line.set({ on: isTrailer, times: always, answer: error(403, 'SignatureDoesNotMatch') });
    const stored = await storage.put('film', streaming(bytesOf(MiB)), { bytes: MiB });
    expect(stored.etag).toBe(stored.checksums.md5);
    line.set({ on: () => true, times: always, answer: error(403, 'SignatureDoesNotMatch') });
    const other = await openBucket({ ...server!, endpoint: line.endpoint }, { bucket: ground.bucket });
    await expect(other.put('film', streaming(bytesOf(MiB)), { bytes: MiB })).rejects.toThrow(/check the secret key/);
    await other.close();
  });

  test('a store that names a version of what it writes, but has none, gets no requests for versions', async () => {
    line.set(
      { on: ofVersion, times: always, answer: error(501, 'NotImplemented') },
      { on: ({ method }) => method === 'PUT', times: always, addHeaders: { 'x-amz-version-id': 'invented' } },
    );
    await storage.put('film', streaming(bytesOf(MiB)), { bytes: MiB });
    expect(line.calls.filter(({ url }) => url.includes('versionId='))).toEqual([]);
    expect(await ground.leftovers()).toEqual([]);
    const keys = (await Array.fromAsync(storage.list(''))).map(({ key }) => key);
    expect(keys).toEqual(['film']);
  });

  test('an upload that the store does not complete is not taken for the equal object of before', async () => {
    const bytes = bytesOf(20 * MiB);
    const upload = async () => {
      const begun = await storage.uploads.begin('film', { bytes: bytes.length });
      const parts = [];
      for (let from = 0, number = 1; from < bytes.length; from += begun.partBytes, number++) {
        const part = streaming(bytes.subarray(from, from + begun.partBytes));
        parts.push(await storage.uploads.put(begun, number, part));
      }
      return { begun, parts };
    };
    const first = await upload();
    await storage.uploads.complete(first.begun, first.parts);
    const again = await upload();
    line.set({ on: asks.complete, times: always, answer: internalError });
    await expect(storage.uploads.complete(again.begun, again.parts)).rejects.toThrow(/answered 500/);
    line.set({ on: asks.complete, times: 1, dropAnswer: true });
    expect(await storage.uploads.complete(again.begun, again.parts)).toMatchObject({ bytes: bytes.length });
    expect(await ground.leftovers()).toEqual([]);

    // The store no longer has the upload, and the object of before is damaged, although its ETag is the same.
    const lost = await upload();
    const isRead: Trouble['on'] = ({ method, url }) => method === 'GET' && url.includes('/film');
    line.set(
      { on: asks.complete, times: 1, answer: error(404, 'NoSuchUpload') },
      { on: isRead, times: 1, answer: { status: 200, body: 'x'.repeat(bytes.length) } },
    );
    await expect(storage.uploads.complete(lost.begun, lost.parts)).rejects.toThrow(UploadLost);
  });
});
