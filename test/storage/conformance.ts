import { once } from 'node:events';
import { PassThrough, Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Part, partLength, type Storage, type Upload, UploadLost } from '../../src/storage/storage.ts';
import { contentHash } from '../support/content-hash.ts';
import { until } from '../support/until.ts';
import { bytesOf, collected, crc32Of, KiB, MiB, streaming } from './bodies.ts';

export interface Ground {
  /** Empty at first. */
  storage: Storage;
  /** Unfinished and abandoned drafts and uploads in parts. */
  leftovers(): Promise<string[]>;
  clear(): Promise<void>;
}

class Broken extends Error {
  override readonly name = 'Broken';
  // The marks of the store's own errors: a similar error of the body must not pass for one.
  readonly code: string;

  constructor(code = 'EIO') {
    super('the line broke');
    this.code = code;
  }
}

/** Tests an implementation for every guarantee that `storage.ts` states. */
export function conformance(name: string, open: () => Promise<Ground>): void {
  describe(name, () => {
    let ground: Ground;
    let storage: Storage;
    beforeAll(async () => {
      ground = await open();
      storage = ground.storage;
    });
    afterAll(() => ground?.clear());

    const read = async (key: string) => {
      const stream = await storage.get(key);
      return stream && collected(stream);
    };
    const keys = async (prefix: string) => (await Array.fromAsync(storage.list(prefix))).map((object) => object.key);

    describe('a stored object', () => {
      const lengths = [0, 1, 64 * KiB - 1, 64 * KiB, 64 * KiB + 1, 3 * MiB];

      test.each(lengths)('a stream with the declared length of %i bytes is stored byte for byte', async (length) => {
        const bytes = bytesOf(length);
        const stored = await storage.put(`known/${length}`, streaming(bytes), { bytes: length });
        expect(stored).toMatchObject({ key: `known/${length}`, bytes: length });
        expect(stored.checksums).toMatchObject({ crc32: crc32Of(bytes), sha256: contentHash(bytes) });
        expect(bytes.equals((await read(`known/${length}`))!)).toBe(true);
        const head = await storage.head(`known/${length}`);
        expect(head).toMatchObject({ key: `known/${length}`, bytes: length, etag: stored.etag });
        expect(Math.abs(head!.modified!.getTime() - Date.now())).toBeLessThan(60_000);
      });

      test.each([...lengths, 16 * MiB, 16 * MiB + 1, 40 * MiB])(
        'a stream of %i bytes without a declared length is stored byte for byte',
        async (length) => {
          const bytes = bytesOf(length);
          const stored = await storage.put(
            `unknown/${length}`,
            streaming(bytes, () => {}, 100 * KiB),
          );
          expect(stored.bytes).toBe(length);
          if (length <= 3 * MiB) expect(stored.checksums.crc32).toBe(crc32Of(bytes));
          expect(stored.checksums.sha256).toBe(contentHash(bytes));
          expect(bytes.equals((await read(`unknown/${length}`))!)).toBe(true);
          expect(await storage.head(`unknown/${length}`)).toMatchObject({ bytes: length, etag: stored.etag });
          expect(await ground.leftovers()).toEqual([]);
        },
      );

      test.each([
        ['text', 'grüße 🎞', 12],
        ['bytes', Buffer.from([0, 255, 0]), 3],
        ['empty text', '', 0],
        ['no bytes', Buffer.alloc(0), 0],
      ])('a stored object of %s comes back as given', async (_, body, length) => {
        const stored = await storage.put('whole', body);
        expect(stored).toMatchObject({ bytes: length, checksums: { crc32: crc32Of(Buffer.from(body)) } });
        expect(await read('whole')).toEqual(Buffer.from(body));
      });

      test('the CRC-32 of a stored object is that of the standard', async () => {
        const stored = await storage.put('nine', '123456789');
        expect(stored.checksums.crc32).toBe('cbf43926');
      });

      test('a body is stored whole however it is split into chunks, also with empty ones', async () => {
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
              expect(await read('cut')).toEqual(whole);
            },
          ),
          { numRuns: 40 },
        );
      });

      test('a body of text chunks is stored as UTF-8', async () => {
        await storage.put('chunks', Readable.from(['grü', 'ße']), { bytes: 7 });
        expect((await read('chunks'))?.toString()).toBe('grüße');
      });

      test('a later put replaces an earlier one', async () => {
        await storage.put('twice', streaming(bytesOf(100 * KiB)), { bytes: 100 * KiB });
        await storage.put('twice', 'short');
        expect((await read('twice'))?.toString()).toBe('short');
      });

      test('puts to one key at the same time all succeed, and one of them is stored whole', async () => {
        const bodies = Array.from({ length: 12 }, (_, i) => Buffer.alloc(i * 10 * KiB + 1, i));
        await Promise.all(
          bodies.map((body, i) =>
            storage.put('race', i % 2 ? body : streaming(body), i % 4 ? { bytes: body.length } : {}),
          ),
        );
        const there = await read('race');
        expect(bodies.some((body) => body.equals(there!))).toBe(true);
        expect(await ground.leftovers()).toEqual([]);
      });

      test('memory does not grow with a body of 200 MiB whose length is declared', { tags: 'slow' }, async () => {
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
    });

    describe('a put that fails', () => {
      const small = 100;
      const large = 8 * MiB;
      const parts = 40 * MiB;

      interface Case {
        what: string;
        declared: number | undefined;
        body: () => Readable;
        error: unknown;
      }
      const throws = () => {
        throw new Broken();
      };
      const broken = expect.objectContaining({ name: 'Broken' });
      const says = (message: RegExp) => expect.objectContaining({ message: expect.stringMatching(message) });
      const closing = (length: number) => {
        const bytes = bytesOf(length);
        let at = 0;
        return new Readable({
          read() {
            if (at === length) this.destroy();
            else this.push(bytes.subarray(at, at + 64 * KiB));
            at = Math.min(length, at + 64 * KiB);
          },
        });
      };
      const cases: Case[] = [
        ...[small, large].flatMap((declared): Case[] => [
          { what: 'breaks at once', declared, body: () => streaming(bytesOf(0), throws), error: broken },
          {
            what: 'breaks in the middle',
            declared,
            body: () => streaming(bytesOf(declared / 2), throws),
            error: broken,
          },
          {
            what: 'breaks behind its last byte',
            declared,
            body: () => streaming(bytesOf(declared), throws),
            error: broken,
          },
          {
            what: 'breaks behind its last byte and an empty chunk',
            declared,
            body: () => {
              const body = new PassThrough();
              body.write(bytesOf(declared));
              body.write(Buffer.alloc(0), () => body.destroy(new Broken()));
              return body;
            },
            error: broken,
          },
          {
            what: 'ends before its first byte',
            declared,
            body: () => streaming(bytesOf(0)),
            error: says(/ended at byte 0 of/),
          },
          {
            what: 'is one byte short',
            declared,
            body: () => streaming(bytesOf(declared - 1)),
            error: says(new RegExp(`ended at byte ${declared - 1} of ${declared}`)),
          },
          {
            what: 'is one byte long, in the same chunk',
            declared,
            body: () => streaming(bytesOf(declared + 1), () => {}, declared + 1),
            error: says(/continues after/),
          },
          {
            what: 'is one byte long, in a later chunk',
            declared,
            body: () => streaming(bytesOf(declared + 1), () => {}, declared),
            error: says(/continues after/),
          },
          {
            what: 'goes on without end',
            declared,
            body: () =>
              Readable.from(
                (async function* () {
                  for (;;) yield Buffer.alloc(64 * KiB);
                })(),
                { objectMode: false },
              ),
            error: says(/continues after/),
          },
          {
            what: 'is closed without an error in the middle',
            declared,
            body: () => closing(declared / 2),
            error: says(/was closed at byte \d+, before its end/),
          },
          {
            what: 'was closed before',
            declared,
            body: () => streaming(bytesOf(declared)).destroy(),
            error: says(/was closed at byte 0, before its end/),
          },
          {
            what: 'had broken before',
            declared,
            body: () =>
              streaming(bytesOf(declared))
                .on('error', () => {})
                .destroy(new Broken()),
            error: broken,
          },
        ]),
        {
          what: 'is declared empty and has a byte',
          declared: 0,
          body: () => streaming(bytesOf(1)),
          error: says(/continues after/),
        },
        { what: 'is declared empty and breaks', declared: 0, body: () => streaming(bytesOf(0), throws), error: broken },
        {
          what: 'of unknown length breaks at once',
          declared: undefined,
          body: () => streaming(bytesOf(0), throws),
          error: broken,
        },
        {
          what: 'of unknown length breaks',
          declared: undefined,
          body: () => streaming(bytesOf(small), throws),
          error: broken,
        },
        {
          what: 'of unknown length breaks after 40 MiB',
          declared: undefined,
          body: () => streaming(bytesOf(parts), throws),
          error: broken,
        },
        {
          what: 'of unknown length is closed after 40 MiB',
          declared: undefined,
          body: () => closing(parts),
          error: says(/was closed at byte \d+, before its end/),
        },
      ];

      describe.each(cases)('a body that $what (declared: $declared)', ({ declared, body: make, error }) => {
        test.each(['nothing was there', 'something was there'])(
          'a put that fails changes nothing if %s before',
          async (before) => {
            const key = `broken/${before}`;
            await storage.remove(key);
            if (before === 'something was there') await storage.put(key, 'old');
            const body = make();
            await expect(storage.put(key, body, { bytes: declared })).rejects.toEqual(error);
            expect(body.destroyed).toBe(true);
            expect((await read(key))?.toString()).toBe(before === 'something was there' ? 'old' : undefined);
            expect(await ground.leftovers()).toEqual([]);
          },
        );
      });

      test.each([4, 6])('a buffer whose length is not the declared %i is refused', async (declared) => {
        await expect(storage.put('at hand', 'bytes', { bytes: declared })).rejects.toThrow(/the body/);
        expect(await storage.head('at hand')).toBeUndefined();
      });

      test.each(['ENOSPC', 'EACCES', 'ENOENT', 'ECONNREFUSED', 'AccessDenied', 'SlowDown'])(
        'a body that fails with %s is not taken for a failure of the store',
        async (code) => {
          const error = new Broken(code);
          const body = streaming(bytesOf(100), () => {
            throw error;
          });
          await expect(storage.put('code', body, { bytes: 200 })).rejects.toBe(error);
        },
      );

      test.each([
        ['declared', 2 * KiB],
        ['declared, large', 6 * MiB],
        ['unknown', undefined],
      ])('readers see the old object until a put has returned (length: %s)', async (_, declared) => {
        await storage.put('seen', 'old');
        const bytes = bytesOf(declared ?? 20 * MiB);
        let goOn = () => {};
        const waiting = new Promise<void>((resolve) => {
          goOn = resolve;
        });
        let offered = false;
        const last = bytes.subarray(-KiB);
        const body = Readable.from(
          (async function* () {
            yield* streaming(bytes.subarray(0, -KiB));
            offered = true;
            await waiting;
            yield last;
          })(),
          { objectMode: false },
        );
        const put = storage.put('seen', body, { bytes: declared });
        await until('all but the last KiB taken', () => offered);
        expect((await read('seen'))?.toString()).toBe('old');
        expect(await storage.head('seen')).toMatchObject({ bytes: 3 });
        expect(await Array.fromAsync(storage.list('seen'))).toMatchObject([{ bytes: 3 }]);
        goOn();
        await put;
        expect(bytes.equals((await read('seen'))!)).toBe(true);
      });

      test('a body that fails when its put begins fails the put', async () => {
        const body = new PassThrough();
        const put = storage.put('at once', body, { bytes: 10 });
        body.destroy(new Broken());
        await expect(put).rejects.toEqual(broken);
        expect(await storage.head('at once')).toBeUndefined();
      });

      test('a second error of a body whose put has failed is ignored', async () => {
        const body = new PassThrough({ autoDestroy: false });
        const put = storage.put('again', body, { bytes: 10 });
        body.emit('error', new Broken());
        await expect(put).rejects.toEqual(broken);
        body.emit('error', new Broken());
        expect(await storage.head('again')).toBeUndefined();
      });
    });

    describe('an abort', () => {
      const reason = new Error('enough');
      const isReason = (error: unknown) => error === reason;

      test('an abort before a put begins leaves the body unread', async () => {
        const body = streaming(bytesOf(100));
        const put = storage.put('an abort', body, { bytes: 100, signal: AbortSignal.abort(reason) });
        await expect(put).rejects.toSatisfy(isReason);
        expect(body.destroyed).toBe(true);
        expect(await storage.head('an abort')).toBeUndefined();
      });

      test.each([
        ['100 bytes', 100, 50],
        ['8 MiB', 8 * MiB, 4 * MiB],
        ['unknown, small', undefined, 1000],
        ['unknown, in parts', undefined, 40 * MiB],
      ])(
        'an abort during a put rejects it at once and leaves nothing behind (length: %s)',
        async (_, declared, sent) => {
          const stop = new AbortController();
          const body = streaming(bytesOf(sent), async () => {
            stop.abort(reason);
            await new Promise(() => {});
          });
          const put = storage.put('an abort', body, { bytes: declared, signal: stop.signal });
          await expect(put).rejects.toSatisfy(isReason);
          expect(body.destroyed).toBe(true);
          expect(await storage.head('an abort')).toBeUndefined();
          await until('nothing is left of it', async () => (await ground.leftovers()).length === 0);
        },
      );

      test('an abort at any moment of a put leaves a whole object, or rejects with its reason', {
        tags: 'slow',
      }, async () => {
        const bytes = bytesOf(3 * MiB);
        for (let moment = 0; moment < 60; moment++) {
          const key = `moment/${moment}`;
          const stop = new AbortController();
          const put = storage.put(key, streaming(bytes), {
            bytes: moment % 2 ? bytes.length : undefined,
            signal: stop.signal,
          });
          const outcome = put.then(
            () => 'stored',
            (error) => error,
          );
          for (let i = 0; i < moment * 2; i++) await setImmediate();
          stop.abort(reason);
          const got = await outcome;
          if (got !== 'stored') expect(got).toBe(reason);
          const head = await storage.head(key);
          if (got === 'stored' || head) expect(head).toMatchObject({ bytes: bytes.length });
        }
        await until('nothing is left of it', async () => (await ground.leftovers()).length === 0);
      });

      test('an abort after a put has returned changes nothing', async () => {
        const stop = new AbortController();
        await storage.put('later', streaming(bytesOf(100)), { bytes: 100, signal: stop.signal });
        stop.abort(reason);
        expect(await storage.head('later')).toMatchObject({ bytes: 100 });
      });

      test('an abort before get, head or list rejects the call with its reason', async () => {
        const signal = AbortSignal.abort(reason);
        await storage.put('read', 'x');
        await expect(storage.get('read', { signal })).rejects.toSatisfy(isReason);
        await expect(storage.head('read', { signal })).rejects.toSatisfy(isReason);
        await expect(Array.fromAsync(storage.list('', { signal }))).rejects.toSatisfy(isReason);
        await expect(Array.fromAsync(storage.purge('read', { signal }))).rejects.toSatisfy(isReason);
        expect((await read('read'))?.toString()).toBe('x');
      });

      test('an abort while a body is read ends that body', async () => {
        await storage.put('reading', bytesOf(8 * MiB));
        const stop = new AbortController();
        const stream = (await storage.get('reading', { signal: stop.signal }))!;
        await once(stream, 'readable');
        stop.abort(reason);
        await expect(collected(stream)).rejects.toMatchObject({ name: 'AbortError', cause: reason });
      });
    });

    keptObjects(() => storage);
    purgedObjects(() => storage);

    describe('keys', () => {
      const strange = [
        'with space/and more.jpg',
        ' leading and trailing ',
        'Überstraße/ñandú/日本語.mp4',
        'emoji 🎬👩‍👩‍👧.mov',
        '100% %20 %2F.txt',
        'a+b&c=d;e,f.txt',
        'what?.txt',
        '#1.txt',
        `"double" 'single' \`back\`.txt`,
        '<xml>&amp;</xml>.txt',
        '(a)[b]{c}!$*@:~^|.txt',
        'back\\slash',
        '.hidden/.file',
        'dots../...txt',
        '_/_mirror_',
        'a'.repeat(200),
      ];

      test.each(strange)('an object can have the key %s', async (key) => {
        const at = `strange/${key}`;
        await storage.put(at, key);
        expect((await read(at))?.toString()).toBe(key);
        expect(await storage.head(at)).toMatchObject({ key: at, bytes: Buffer.byteLength(key) });
        expect(await keys(at)).toEqual([at]);
        await storage.remove(at);
        expect(await storage.head(at)).toBeUndefined();
      });

      test('keys are listed by prefix, in the order of their UTF-8 bytes', async () => {
        const names = [
          'a',
          'a b',
          'a-b',
          'a.b',
          'a/b',
          'a/b/c',
          'a0',
          'aa',
          'B',
          'b',
          'z',
          'ä',
          'é',
          '\ufb01',
          '𐍈',
          '🎬',
        ];
        const all = names.map((name) => `order/${name === 'a' ? 'a!' : name === 'a/b' ? 'a/b!' : name}`);
        for (const key of all) await storage.put(key, '');
        const ordered = all.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
        expect(await keys('order/')).toEqual(ordered);
        expect(await keys('order')).toEqual(ordered);
        for (const prefix of ['order/a', 'order/a/', 'order/a/b', 'order/a/b/c', 'order/ä', 'order/x', 'rder/']) {
          expect(await keys(prefix)).toEqual(ordered.filter((key) => key.startsWith(prefix)));
        }
      });

      test('keys are listed completely, also if there are more than a thousand', {
        tags: 'slow',
      }, async () => {
        const all = Array.from({ length: 1100 }, (_, i) => `many/${String(i % 3)}/${String(i).padStart(5, '0')}`);
        const queue = [...all];
        const worker = async () => {
          for (let key = queue.pop(); key !== undefined; key = queue.pop()) await storage.put(key, key);
        };
        await Promise.all(Array.from({ length: 16 }, worker));
        expect(await keys('many/')).toEqual(all.toSorted());
        expect(await keys('many/1/')).toEqual(all.toSorted().filter((key) => key.startsWith('many/1/')));
        const listed = await Array.fromAsync(storage.list('many/0'));
        expect(listed.every((object) => object.bytes === object.key.length && object.modified instanceof Date)).toBe(
          true,
        );
      });

      test('a list of keys that is left early frees its resources', { tags: 'slow' }, async () => {
        for await (const object of storage.list('many/')) {
          expect(object.key).toBe('many/0/00000');
          break;
        }
      });
    });

    test('a folder is purged completely, also if it has more than a thousand objects', {
      tags: 'slow',
    }, async () => {
      expect(await Array.fromAsync(storage.purge('many/'))).toHaveLength(1100);
      expect(await keys('many/')).toEqual([]);
    });

    test('a part of an object is read by its first and last byte', async () => {
      await storage.put('a/part', 'abcdefgh');
      const part = async (first: number, last: number) =>
        (await collected((await storage.get('a/part', { range: { first, last } }))!)).toString();
      expect(await part(0, 0)).toBe('a');
      expect(await part(2, 5)).toBe('cdef');
      expect(await part(6, 7)).toBe('gh');
    });

    test('an object that has been replaced since `head` is none', async () => {
      await storage.put('a/found', 'first');
      const found = (await storage.head('a/found'))!;
      expect((await collected((await storage.get('a/found', { found }))!)).toString()).toBe('first');
      await storage.put('a/found', 'second');
      expect(await storage.get('a/found', { found })).toBeUndefined();
      await storage.remove('a/found');
      expect(await storage.get('a/found', { found })).toBeUndefined();
    });

    describe('a missing object', () => {
      test('a missing object has no head and no body', async () => {
        expect(await storage.head('no/such')).toBeUndefined();
        expect(await storage.get('no/such')).toBeUndefined();
        expect(await keys('no/such')).toEqual([]);
      });

      test('a missing object can be removed repeatedly without an error', async () => {
        await storage.put('goes/away', 'x');
        await storage.remove('goes/away');
        await storage.remove('goes/away');
        await storage.remove('never/there');
        expect(await storage.head('goes/away')).toBeUndefined();
        expect(await keys('goes')).toEqual([]);
      });

      test('a missing object is not found by the beginning of another key', async () => {
        await storage.put('folder/object', 'x');
        expect(await storage.head('folder')).toBeUndefined();
        expect(await storage.get('folder')).toBeUndefined();
        await storage.remove('folder');
        expect(await storage.head('folder/object/behind')).toBeUndefined();
        expect(await storage.get('folder/object/behind')).toBeUndefined();
        await storage.remove('folder/object/behind');
        expect((await read('folder/object'))?.toString()).toBe('x');
      });
    });

    describe('an upload in parts', () => {
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

    test.each([
      ['known', 300_000],
      ['unknown', undefined],
    ])('a body of %s length is not stored if its fence refuses after its end', async (length, bytes) => {
      const key = `fenced ${length}`;
      let ended = false;
      const body = streaming(bytesOf(300_000), () => {
        ended = true;
      });
      const fence = async () => {
        expect(ended).toBe(true);
        throw new Broken();
      };
      await expect(storage.put(key, body, { bytes, fence })).rejects.toThrow(Broken);
      expect(await storage.head(key)).toBeUndefined();
      expect(await ground.leftovers()).toEqual([]);
      await expect(storage.put(key, 'text', { fence })).rejects.toThrow();
      await storage.put(key, 'text', { fence: async () => {} });
      expect((await read(key))!.toString()).toBe('text');
    });

    test('a buffer of the wrong length, or one whose put is aborted, does not replace the object', async () => {
      await storage.put('at hand', 'before');
      const text = 'behind';
      for (const bytes of [text.length - 1, text.length + 1])
        for (const body of [text, Buffer.from(text)])
          await expect(storage.put('at hand', body, { bytes })).rejects.toThrow(/^the body /);
      const reason = new Error('enough');
      const stop = new AbortController();
      const fence = async () => stop.abort(reason);
      await expect(storage.put('at hand', text, { fence, signal: stop.signal })).rejects.toBe(reason);
      await expect(storage.put('at hand', text, { signal: stop.signal })).rejects.toBe(reason);
      // The server does not answer.
      const again = new AbortController();
      const hanging = () => {
        void setImmediate().then(() => again.abort(reason));
        return new Promise<void>(() => {});
      };
      await expect(storage.put('at hand', text, { fence: hanging, signal: again.signal })).rejects.toBe(reason);
      // The client cannot reach the store.
      const lost = Object.assign(new Error('no database'), { code: 'ECONNREFUSED' });
      await expect(storage.put('at hand', text, { fence: () => Promise.reject(lost) })).rejects.toBe(lost);
      expect((await read('at hand'))!.toString()).toBe('before');
      const body = Buffer.from(text);
      // The caller may reuse its buffer after the call.
      const put = storage.put('at hand', body, { bytes: text.length });
      body.fill('x');
      await put;
      expect((await read('at hand'))!.toString()).toBe(text);
      expect(await ground.leftovers()).toEqual([]);
    });

    test('a check succeeds if objects can be written, and leaves none behind', async () => {
      const before = await keys('');
      await storage.check();
      expect(await keys('')).toEqual(before);
      expect(await ground.leftovers()).toEqual([]);
    });
  });
}

/** The guarantees of `keep`, which depend on whether a bucket has versions. */
export function keptObjects(open: () => Storage): void {
  describe('a kept object', () => {
    let as = '';
    let places = 0;
    beforeEach(() => {
      as = `kept/elsewhere/${++places}/ä b+c.bin`;
    });
    const textOf = async (object: { key: string; versionId?: string }) => {
      const body = await open().get(object.key, object);
      return body && (await collected(body)).toString();
    };

    test.each(['kept/of mine/ü+1 %.txt', 'kept/empty'])('%s is kept when another object replaces it', async (key) => {
      const storage = open();
      const text = key === 'kept/empty' ? '' : 'the good one';
      const stored = await storage.put(key, text);
      const kept = (await storage.keep(key, as))!;
      expect(kept.bytes).toBe(stored.bytes);
      await storage.put(key, 'another one');
      await storage.put(key, 'the last one');
      expect(await textOf(kept)).toBe(text);
      expect(await storage.head(kept.key, kept)).toMatchObject({ bytes: kept.bytes, etag: kept.etag });
      expect(await textOf({ key })).toBe('the last one');

      await storage.remove(key);
      expect(await textOf({ key })).toBeUndefined();
      expect(await textOf(kept)).toBe(text);
      await storage.remove(kept.key, kept);
      expect(await textOf(kept)).toBeUndefined();
    });

    test('an object can be kept again, with the same result', async () => {
      const storage = open();
      await storage.put('kept/again', 'again');
      const kept = await storage.keep('kept/again', as);
      expect(await storage.keep('kept/again', as)).toEqual(kept);
      expect(await textOf(kept!)).toBe('again');
      if (!kept!.versionId) {
        await storage.put('kept/again', 'a later one, kept at the same key');
        expect(await textOf((await storage.keep('kept/again', as))!)).toBe('a later one, kept at the same key');
      }
    });

    test('without an object there is nothing to keep', async () => {
      expect(await open().keep('kept/nowhere', `${as}.none`)).toBeUndefined();
      expect(await open().head(`${as}.none`)).toBeUndefined();
    });

    test('an object that was replaced since it was found is not kept, and an earlier copy of it stays', async () => {
      const storage = open();
      await storage.put('kept/found', 'the good one');
      const found = (await storage.head('kept/found'))!;
      const kept = (await storage.keep('kept/found', as, { found }))!;
      await until('a later file', async () => {
        await storage.put('kept/found', 'the next one');
        return (await storage.head('kept/found'))!.modified! > found.modified!;
      });
      await expect(storage.keep('kept/found', as, { found })).rejects.toThrow('another object has replaced it');
      expect(await textOf(kept)).toBe('the good one');
    });

    test('a large object in parts is kept byte for byte', async () => {
      const storage = open();
      const bytes = bytesOf(17 * MiB + 3);
      await storage.put('kept/large', streaming(bytes));
      const kept = (await storage.keep('kept/large', as))!;
      await storage.put('kept/large', 'small');
      expect(bytes.equals(await collected((await storage.get(kept.key, kept))!))).toBe(true);
    });

    test('an abort before an object is kept rejects with its reason', async () => {
      await open().put('kept/not', 'text');
      const signal = AbortSignal.abort(new Broken());
      await expect(open().keep('kept/not', `${as}.not`, { signal })).rejects.toThrow(Broken);
    });
  });
}

/** The guarantees of `purge`, which depend on whether a bucket has versions, too. */
export function purgedObjects(open: () => Storage): void {
  describe('a purge', () => {
    const found = async (at: string, options = {}) =>
      (await Array.fromAsync(open().purge(at, options))).map(({ key, bytes }) => `${key} ${bytes}`).sort();
    const keys = async (prefix: string) => (await Array.fromAsync(open().list(prefix))).map(({ key }) => key);

    test('a purge removes one object, or a folder, and nothing else', async () => {
      const names = ['a/film ü+%.mp4', 'a/film ü+%.mp4.vtt', 'a/old/film.mp4', 'ab/film.mp4', 'b'];
      for (const name of names) await open().put(`purged/${name}`, 'text');
      const below = names.slice(0, 3).map((name) => `purged/${name} 4`);
      expect(await found('purged/a/', { dryRun: true })).toEqual(below);
      expect(await keys('purged/')).toHaveLength(5);
      expect(await found('purged/a/film ü+%.mp4')).toEqual(below.slice(0, 1));
      expect(await found('purged/a')).toEqual([]);
      expect(await found('purged/a/')).toEqual(below.slice(1));
      expect(await found('purged/a/')).toEqual([]);
      expect(await keys('purged/')).toEqual(['purged/ab/film.mp4', 'purged/b']);
    });

    test('a purge asks before each removal whether it may go on', async () => {
      for (const name of ['1', '2', '3']) await open().put(`purged/fenced/${name}`, 'text');
      let asked = 0;
      const fence = async () => {
        if (++asked === 2) throw new Error('no more');
      };
      await expect(found('purged/fenced/', { fence })).rejects.toThrow('no more');
      expect(await keys('purged/fenced/')).toEqual(['purged/fenced/2', 'purged/fenced/3']);
    });

    test('a purge removes all versions of an object, also of one that was removed', async () => {
      const storage = open();
      await storage.put('purged/versions/film', '1');
      const kept = (await storage.keep('purged/versions/film', 'purged/copy'))!;
      await storage.put('purged/versions/film', '22');
      await storage.put('purged/versions/gone', '333');
      await storage.remove('purged/versions/gone');
      const isVersion = kept.versionId !== undefined;
      const all = [...(isVersion ? ['film 1'] : []), 'film 2', ...(isVersion ? ['gone 3'] : [])];
      const expected = all.map((name) => `purged/versions/${name}`);
      expect(await found('purged/versions/', { dryRun: true })).toEqual(expected);
      expect(await found('purged/versions/')).toEqual(expected);
      expect(await found('purged/versions/', { dryRun: true })).toEqual([]);
      // A copy is elsewhere.
      expect((await storage.head(kept.key, kept)) !== undefined).toBe(!isVersion);
    });

    test('a purge of one version leaves the others', async () => {
      const storage = open();
      await storage.put('purged/one', '1');
      const kept = (await storage.keep('purged/one', 'purged/one, kept'))!;
      await storage.put('purged/one', '22');
      await Array.fromAsync(storage.purge(kept.key, kept));
      expect(await storage.head(kept.key, kept)).toBeUndefined();
      expect(await storage.head('purged/one')).toMatchObject({ bytes: 2 });
    });
  });
}

/** The guarantees of S3_OBJECT_LOCK, for a store that was opened with it. */
export function lockedObjects(open: () => Storage): void {
  describe('a locked object', () => {
    const media = { media: true } as const;
    const lockOf = () => open().lock!;
    /** Until when each object below a folder is locked, as a share of the time of the setting; undefined: it is not. */
    async function locksBelow(at: string) {
      const purged = await Array.fromAsync(open().purge(at));
      return purged.map(({ key, bytes, left }) => ({
        ...{ key, bytes },
        share: left && ((left.lockedUntil?.getTime() ?? 0) - Date.now()) / lockOf().ms,
      }));
    }
    const lasting = { share: expect.closeTo(0.9, 0) };

    test('media is locked, written at once or in parts, and no other object', async () => {
      const storage = open();
      await storage.put('locks/written/bytes', 'film', media);
      await storage.put('locks/written/record', '{}');
      await storage.put('locks/written/stream', streaming(bytesOf(4)), { ...media, bytes: 4 });
      const upload = await storage.uploads.begin('locks/written/upload', { ...media, bytes: 6 * MiB });
      const parts = [1, 2].map((number) =>
        storage.uploads.put(upload, number, streaming(bytesOf(partLength(upload, number)))),
      );
      await storage.uploads.complete(upload, await Promise.all(parts));
      const found = (await locksBelow('locks/written/')).toSorted((a, b) => a.key.localeCompare(b.key));
      expect(found).toEqual([
        { key: 'locks/written/bytes', bytes: 4, ...lasting },
        { key: 'locks/written/record', bytes: 2, share: undefined },
        { key: 'locks/written/stream', bytes: 4, ...lasting },
        { key: 'locks/written/upload', bytes: 6 * MiB, ...lasting },
      ]);
    });

    test('a locked object that is purged stays as a version, and is hidden', async () => {
      const storage = open();
      await storage.put('locks/purged/film', 'film', media);
      const kept = (await storage.keep('locks/purged/film', 'locks/copy'))!;
      expect(await locksBelow('locks/purged/')).toEqual([{ key: 'locks/purged/film', bytes: 4, ...lasting }]);
      const again = await Array.fromAsync(storage.purge('locks/purged/'));
      expect(again).toMatchObject([{ key: 'locks/purged/film', bytes: 4, left: {} }]);
      expect(await storage.head('locks/purged/film')).toBeUndefined();
      expect(await Array.fromAsync(storage.list('locks/purged/'))).toEqual([]);
      expect(await storage.head(kept.key, kept)).toMatchObject({ bytes: 4 });
    });

    test('a locked object can be replaced and removed, and its versions stay', async () => {
      const storage = open();
      await storage.put('locks/replaced/film', 'first', media);
      const kept = (await storage.keep('locks/replaced/film', 'locks/copy'))!;
      await storage.put('locks/replaced/film', 'second', media);
      await storage.remove('locks/replaced/film');
      expect(await storage.head('locks/replaced/film')).toBeUndefined();
      await expect(storage.remove(kept.key, kept)).rejects.toThrow();
      expect((await collected((await storage.get(kept.key, kept))!)).toString()).toBe('first');
      const found = await Array.fromAsync(storage.purge('locks/replaced/', { dryRun: true }));
      expect(found.map(({ bytes }) => bytes).sort()).toEqual([5, 6]);
    });

    test('an object, or a version of it, is locked from now on, but not for longer than asked', async () => {
      const storage = open();
      const { ms, extend } = lockOf();
      for (const text of ['first', 'second']) await storage.put('locks/extended/film', text);
      const kept = (await storage.keep('locks/extended/film', 'locks/copy'))!;
      await storage.put('locks/extended/film', 'the third');
      const shareOf = (until: Date | undefined) => (until!.getTime() - Date.now()) / ms;
      const soon = new Date(Math.ceil((Date.now() + ms / 4) / 1000) * 1000);
      expect(await extend(kept.key, { ...kept, atMost: soon })).toEqual(soon);
      expect(await extend(kept.key, { ...kept, atMost: soon })).toEqual(soon);
      // It is less than half of the time, so it can become longer.
      expect(shareOf(await extend(kept.key, kept))).toBeCloseTo(0.9, 0);
      expect(shareOf(await extend('locks/extended/film'))).toBeCloseTo(0.9, 0);
      expect(shareOf(await extend(kept.key, { ...kept, atMost: soon }))).toBeCloseTo(0.9, 0);
      expect(await extend('locks/extended/nothing')).toBeUndefined();
      const found = (await locksBelow('locks/extended/')).toSorted((a, b) => a.bytes - b.bytes);
      expect(found).toMatchObject([
        { bytes: 5, share: undefined },
        { bytes: 6, ...lasting },
        { bytes: 9, ...lasting },
      ]);
    });
  });
}
