import { PassThrough, Readable } from 'node:stream';
import { beforeAll, describe, expect, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import { until } from '../../support/until.ts';
import { bytesOf, KiB, MiB, streaming } from '../bodies.ts';
import { Broken, type Ground, readFrom } from './ground.ts';

/** The guarantees of a `put` that fails. */
export function failedPuts(open: () => Ground): void {
  describe('a put that fails', () => {
    let ground: Ground;
    let storage: Storage;
    beforeAll(() => {
      ground = open();
      storage = ground.storage;
    });
    const read = (key: string) => readFrom(storage, key);

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
}
