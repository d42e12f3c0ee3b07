import { PassThrough, Readable } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { contentHash } from '../../support/content-hash.ts';
import { bytesOf, crc32Of, KiB, MiB, streaming } from '../bodies.ts';
import { type Ground, readFrom } from './ground.ts';

const lengths = [0, 1, 64 * KiB - 1, 64 * KiB, 64 * KiB + 1, 3 * MiB];

/** The guarantees of a `put` that succeeds. */
export function storedObjects(open: () => Ground): void {
  describe('a stored object', () => {
    storedStreams(open);
    storedContents(open);
    repeatedPuts(open);
    largeBodies(open);
  });
}

function storedStreams(open: () => Ground): void {
  test.each(lengths)('a stream with the declared length of %i bytes is stored byte for byte', async (length) => {
    const { storage } = open();
    const bytes = bytesOf(length);
    const stored = await storage.put(`known/${length}`, streaming(bytes), { bytes: length });
    expect(stored).toMatchObject({ key: `known/${length}`, bytes: length });
    expect(stored.checksums).toMatchObject({ crc32: crc32Of(bytes), sha256: contentHash(bytes) });
    expect(bytes.equals((await readFrom(storage, `known/${length}`))!)).toBe(true);
    const head = await storage.head(`known/${length}`);
    expect(head).toMatchObject({ key: `known/${length}`, bytes: length, etag: stored.etag });
    expect(Math.abs(head!.modified!.getTime() - Date.now())).toBeLessThan(60_000);
  });

  test.each([...lengths, 16 * MiB, 16 * MiB + 1, 40 * MiB])(
    'a stream of %i bytes without a declared length is stored byte for byte',
    async (length) => {
      const { storage } = open();
      const bytes = bytesOf(length);
      const stored = await storage.put(
        `unknown/${length}`,
        streaming(bytes, () => {}, 100 * KiB),
      );
      expect(stored.bytes).toBe(length);
      if (length <= 3 * MiB) expect(stored.checksums.crc32).toBe(crc32Of(bytes));
      expect(stored.checksums.sha256).toBe(contentHash(bytes));
      expect(bytes.equals((await readFrom(storage, `unknown/${length}`))!)).toBe(true);
      expect(await storage.head(`unknown/${length}`)).toMatchObject({ bytes: length, etag: stored.etag });
      expect(await open().leftovers()).toEqual([]);
    },
  );
}

function storedContents(open: () => Ground): void {
  test.each([
    ['text', 'grüße 🎞', 12],
    ['bytes', Buffer.from([0, 255, 0]), 3],
    ['empty text', '', 0],
    ['no bytes', Buffer.alloc(0), 0],
  ])('a stored object of %s comes back as given', async (_, body, length) => {
    const { storage } = open();
    const stored = await storage.put('whole', body);
    expect(stored).toMatchObject({ bytes: length, checksums: { crc32: crc32Of(Buffer.from(body)) } });
    expect(await readFrom(storage, 'whole')).toEqual(Buffer.from(body));
  });

  test('the CRC-32 of a stored object is that of the standard', async () => {
    const { storage } = open();
    const stored = await storage.put('nine', '123456789');
    expect(stored.checksums.crc32).toBe('cbf43926');
  });

  test('a body is stored whole however it is split into chunks, also with empty ones', async () => {
    const { storage } = open();
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 8 }),
        fc.boolean(),
        async (chunks, declared) => {
          const whole = Buffer.concat(chunks);
          const body = new PassThrough();
          for (const chunk of chunks) body.write(chunk);
          body.end();
          await storage.put('cut', body, declared ? { bytes: whole.length } : {});
          expect(await readFrom(storage, 'cut')).toEqual(whole);
        },
      ),
      { numRuns: 40 },
    );
  });

  test('a body of text chunks is stored as UTF-8', async () => {
    const { storage } = open();
    await storage.put('chunks', Readable.from(['grü', 'ße']), { bytes: 7 });
    expect((await readFrom(storage, 'chunks'))?.toString()).toBe('grüße');
  });
}

function repeatedPuts(open: () => Ground): void {
  test('a later put replaces an earlier one', async () => {
    const { storage } = open();
    await storage.put('twice', streaming(bytesOf(100 * KiB)), { bytes: 100 * KiB });
    await storage.put('twice', 'short');
    expect((await readFrom(storage, 'twice'))?.toString()).toBe('short');
  });

  test('puts to one key at the same time all succeed, and one of them is stored whole', async () => {
    const { storage } = open();
    const bodies = Array.from({ length: 12 }, (_, i) => Buffer.alloc(i * 10 * KiB + 1, i));
    await Promise.all(
      bodies.map((body, i) => storage.put('race', i % 2 ? body : streaming(body), i % 4 ? { bytes: body.length } : {})),
    );
    const there = await readFrom(storage, 'race');
    expect(bodies.some((body) => body.equals(there!))).toBe(true);
    expect(await open().leftovers()).toEqual([]);
  });
}

function largeBodies(open: () => Ground): void {
  test('memory does not grow with a body of 200 MiB whose length is declared', { tags: 'slow' }, async () => {
    const { storage } = open();
    const length = 200 * MiB;
    let held = 0;
    const before = process.memoryUsage().arrayBuffers;
    const body = Readable.from(
      (async function* () {
        for (let at = 0; at < length; at += MiB) {
          for (let i = 0; i < 16; i++) yield Buffer.alloc(MiB / 16, at / MiB);
          if (at % (20 * MiB) > 0) continue;
          // Garbage that is not collected yet does not count.
          globalThis.gc!();
          held = Math.max(held, process.memoryUsage().arrayBuffers - before);
        }
      })(),
      { objectMode: false },
    );
    const stored = await storage.put('large', body, { bytes: length });
    expect(stored.bytes).toBe(length);
    expect(await storage.head('large')).toMatchObject({ bytes: length });
    expect(held).toBeLessThan(100 * MiB);
    await storage.remove('large');
  });
}
