import { beforeAll, describe, expect, test } from 'vitest';
import { type Part, partLength, type Storage, type Upload, UploadLost } from '../../../src/storage/storage.ts';
import { contentHash } from '../../support/content-hash.ts';
import { bytesOf, crc32Of, KiB, MiB, streaming } from '../bodies.ts';
import { Broken, type Ground, keysIn, readFrom } from './ground.ts';

/** The guarantees of uploads in parts. */
export function uploads(open: () => Ground): void {
  describe('an upload in parts', () => {
    let ground: Ground;
    let storage: Storage;
    beforeAll(() => {
      ground = open();
      storage = ground.storage;
    });
    const read = (key: string) => readFrom(storage, key);
    const keys = (prefix: string) => keysIn(storage, prefix);

    const body = bytesOf(2 * 16 * MiB + 100 * KiB);
    const partOf = (upload: Upload, number: number) => {
      const at = (number - 1) * upload.partBytes;
      return body.subarray(at, at + partLength(upload, number));
    };
    const begin = (key: string) => storage.uploads.begin(key, { bytes: body.length, contentType: 'video/mp4' });
    const put = (upload: Upload, number: number, content = partOf(upload, number)) =>
      storage.uploads.put(upload, number, streaming(content));

    test('an upload takes parts in any order and at once, and its object appears when it is completed', {
      tags: 'slow',
    }, async () => {
      const upload = await begin('parts/whole');
      expect(upload).toMatchObject({ key: 'parts/whole', bytes: body.length, partBytes: 16 * MiB });
      // The upload may come from a database.
      const remembered = JSON.parse(JSON.stringify(upload)) as Upload;
      const parts = await Promise.all([3, 1, 2].map((number) => put(remembered, number)));
      expect(await storage.head('parts/whole')).toBeUndefined();
      expect(await keys('parts/')).toEqual([]);
      const listed = (await storage.uploads.list(remembered))!;
      expect([...listed].sort(([a], [b]) => a - b)).toEqual(
        parts.toSorted((a, b) => a.number - b.number).map(({ number, bytes, etag }) => [number, { bytes, etag }]),
      );
      const sorted = parts.toSorted((a, b) => a.number - b.number);
      const stored = await storage.uploads.complete(remembered, sorted);
      expect(stored).toMatchObject({
        key: 'parts/whole',
        bytes: body.length,
        checksums: { crc32: crc32Of(body), sha256: contentHash(body) },
      });
      expect(body.equals((await read('parts/whole'))!)).toBe(true);
      expect(await storage.head('parts/whole')).toMatchObject({ bytes: body.length, etag: stored.etag });
      expect(await ground.leftovers()).toEqual([]);
    });

    test('an upload does not store a part that breaks, has the wrong length or is aborted; it can be put again', async () => {
      const upload = await begin('parts/broken');
      const first = partOf(upload, 1);
      const broken = streaming(first.subarray(0, MiB), () => {
        throw new Broken();
      });
      await expect(storage.uploads.put(upload, 1, broken)).rejects.toThrow(Broken);
      await expect(put(upload, 1, first.subarray(1))).rejects.toThrow(/ended at byte/);
      await expect(put(upload, 1, body.subarray(0, upload.partBytes + 1))).rejects.toThrow(/continues after/);
      const given = new AbortController();
      const held = storage.uploads.put(
        upload,
        1,
        streaming(first, () => new Promise(() => {})),
        given,
      );
      given.abort(new Broken());
      await expect(held).rejects.toThrow(Broken);
      expect([...(await storage.uploads.list(upload))!.keys()]).toEqual([]);
      const parts = [];
      for (const number of [1, 2, 3, 2]) parts[number - 1] = await put(upload, number);
      await storage.uploads.complete(upload, parts as Part[]);
      expect(body.equals((await read('parts/broken'))!)).toBe(true);
    });

    test('an upload can be completed twice: the stored object decides', async () => {
      const upload = await begin('parts/again');
      const parts = [await put(upload, 1), await put(upload, 2), await put(upload, 3)];
      const stored = await storage.uploads.complete(upload, parts);
      expect(await storage.uploads.list(upload)).toBeUndefined();
      const asked = await storage.uploads.complete(upload, parts).catch((error) => error);
      // A store that can recognize the object as made of these parts succeeds; others must fail.
      if (asked instanceof Error) expect(asked).toBeInstanceOf(UploadLost);
      else expect(asked).toEqual(stored);
      expect(body.equals((await read('parts/again'))!)).toBe(true);
    });

    test('an upload that is aborted leaves nothing, and cannot be continued', async () => {
      const upload = await begin('parts/ended');
      const parts = [await put(upload, 1), await put(upload, 2), await put(upload, 3)];
      await storage.uploads.abort(upload);
      await storage.uploads.abort(upload);
      expect(await ground.leftovers()).toEqual([]);
      expect(await storage.uploads.list(upload)).toBeUndefined();
      await expect(put(upload, 1)).rejects.toThrow(UploadLost);
      await expect(storage.uploads.complete(upload, parts)).rejects.toThrow(UploadLost);
      expect(await storage.head('parts/ended')).toBeUndefined();
    });
  });
}
