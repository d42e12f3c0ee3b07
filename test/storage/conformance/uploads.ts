import { describe, expect, test } from 'vitest';
import { type Part, partLength, type Storage, type Upload, UploadLost } from '../../../src/storage/storage.ts';
import { contentHash } from '../../support/content-hash.ts';
import { bytesOf, crc32Of, KiB, MiB, streaming } from '../bodies.ts';
import { Broken, type Ground, keysIn, readFrom } from './ground.ts';

const body = bytesOf(2 * 16 * MiB + 100 * KiB);

/** The guarantees of uploads in parts. */
export function uploads(open: () => Ground): void {
  describe('an upload in parts', () => {
    partsInAnyOrder(open);
    partsThatFail(open);
    endedUploads(open);
  });
}

function partsInAnyOrder(open: () => Ground): void {
  test('an upload takes parts in any order and at once, and its object appears when it is completed', {
    tags: 'slow',
  }, async () => {
    const { storage } = open();
    const upload = await begin(storage, 'parts/whole');
    expect(upload).toMatchObject({ key: 'parts/whole', bytes: body.length, partBytes: 16 * MiB });
    // The upload may come from a database.
    const remembered = JSON.parse(JSON.stringify(upload)) as Upload;
    const parts = await Promise.all([3, 1, 2].map((number) => put(storage, remembered, number)));
    expect(await storage.head('parts/whole')).toBeUndefined();
    expect(await keysIn(storage, 'parts/')).toEqual([]);
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
    expect(body.equals((await readFrom(storage, 'parts/whole'))!)).toBe(true);
    expect(await storage.head('parts/whole')).toMatchObject({ bytes: body.length, etag: stored.etag });
    expect(await open().leftovers()).toEqual([]);
  });
}

function partsThatFail(open: () => Ground): void {
  test('an upload does not store a part that breaks, has the wrong length or is aborted; it can be put again', async () => {
    const { storage } = open();
    const upload = await begin(storage, 'parts/broken');
    const first = partOf(upload, 1);
    const broken = streaming(first.subarray(0, MiB), () => {
      throw new Broken();
    });
    await expect(storage.uploads.put(upload, 1, broken)).rejects.toThrow(Broken);
    await expect(put(storage, upload, 1, first.subarray(1))).rejects.toThrow(/ended at byte/);
    await expect(put(storage, upload, 1, body.subarray(0, upload.partBytes + 1))).rejects.toThrow(/continues after/);
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
    for (const number of [1, 2, 3, 2]) parts[number - 1] = await put(storage, upload, number);
    await storage.uploads.complete(upload, parts as Part[]);
    expect(body.equals((await readFrom(storage, 'parts/broken'))!)).toBe(true);
  });
}

function endedUploads(open: () => Ground): void {
  test('an upload can be completed twice: the stored object decides', async () => {
    const { storage } = open();
    const upload = await begin(storage, 'parts/again');
    const parts = [await put(storage, upload, 1), await put(storage, upload, 2), await put(storage, upload, 3)];
    const stored = await storage.uploads.complete(upload, parts);
    expect(await storage.uploads.list(upload)).toBeUndefined();
    const asked = await storage.uploads.complete(upload, parts).catch((error) => error);
    // A store that can recognize the object as made of these parts succeeds; others must fail.
    if (asked instanceof Error) expect(asked).toBeInstanceOf(UploadLost);
    else expect(asked).toEqual(stored);
    expect(body.equals((await readFrom(storage, 'parts/again'))!)).toBe(true);
  });

  test('an upload that is aborted leaves nothing, and cannot be continued', async () => {
    const { storage } = open();
    const upload = await begin(storage, 'parts/ended');
    const parts = [await put(storage, upload, 1), await put(storage, upload, 2), await put(storage, upload, 3)];
    await storage.uploads.abort(upload);
    await storage.uploads.abort(upload);
    expect(await open().leftovers()).toEqual([]);
    expect(await storage.uploads.list(upload)).toBeUndefined();
    await expect(put(storage, upload, 1)).rejects.toThrow(UploadLost);
    await expect(storage.uploads.complete(upload, parts)).rejects.toThrow(UploadLost);
    expect(await storage.head('parts/ended')).toBeUndefined();
  });
}

const begin = (storage: Storage, key: string) =>
  storage.uploads.begin(key, { bytes: body.length, contentType: 'video/mp4' });

function partOf(upload: Upload, number: number): Buffer {
  const at = (number - 1) * upload.partBytes;
  return body.subarray(at, at + partLength(upload, number));
}

const put = (storage: Storage, upload: Upload, number: number, content = partOf(upload, number)) =>
  storage.uploads.put(upload, number, streaming(content));
