import { PassThrough, Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { until } from '../../support/until.ts';
import { bytesOf, KiB, MiB, streaming } from '../bodies.ts';
import { broken, failingBodies } from './failing-bodies.ts';
import { Broken, type Ground, readFrom } from './ground.ts';

/** The guarantees of a `put` that fails. */
export function failedPuts(open: () => Ground): void {
  describe('a put that fails', () => {
    failedBodies(open);
    oldObjects(open);
    errorsOfBodies(open);
  });
}

function failedBodies(open: () => Ground): void {
  describe.each(failingBodies)('a body that $what (declared: $declared)', ({ declared, body: make, error }) => {
    test.each(['nothing was there', 'something was there'])(
      'a put that fails changes nothing if %s before',
      async (before) => {
        const { storage } = open();
        const key = `broken/${before}`;
        await storage.remove(key);
        if (before === 'something was there') await storage.put(key, 'old');
        const body = make();
        await expect(storage.put(key, body, { bytes: declared })).rejects.toEqual(error);
        expect(body.destroyed).toBe(true);
        expect((await readFrom(storage, key))?.toString()).toBe(before === 'something was there' ? 'old' : undefined);
        expect(await open().leftovers()).toEqual([]);
      },
    );
  });

  test.each([4, 6])('a buffer whose length is not the declared %i is refused', async (declared) => {
    const { storage } = open();
    await expect(storage.put('at hand', 'bytes', { bytes: declared })).rejects.toThrow(/the body/);
    expect(await storage.head('at hand')).toBeUndefined();
  });

  test.each(['ENOSPC', 'EACCES', 'ENOENT', 'ECONNREFUSED', 'AccessDenied', 'SlowDown'])(
    'a body that fails with %s is not taken for a failure of the store',
    async (code) => {
      const { storage } = open();
      const error = new Broken(code);
      const body = streaming(bytesOf(100), () => {
        throw error;
      });
      await expect(storage.put('code', body, { bytes: 200 })).rejects.toBe(error);
    },
  );
}

function oldObjects(open: () => Ground): void {
  test.each([
    ['declared', 2 * KiB],
    ['declared, large', 6 * MiB],
    ['unknown', undefined],
  ])('readers see the old object until a put has returned (length: %s)', async (_, declared) => {
    const { storage } = open();
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
    expect((await readFrom(storage, 'seen'))?.toString()).toBe('old');
    expect(await storage.head('seen')).toMatchObject({ bytes: 3 });
    expect(await Array.fromAsync(storage.list('seen'))).toMatchObject([{ bytes: 3 }]);
    goOn();
    await put;
    expect(bytes.equals((await readFrom(storage, 'seen'))!)).toBe(true);
  });
}

function errorsOfBodies(open: () => Ground): void {
  test('a body that fails when its put begins fails the put', async () => {
    const { storage } = open();
    const body = new PassThrough();
    const put = storage.put('at once', body, { bytes: 10 });
    body.destroy(new Broken());
    await expect(put).rejects.toEqual(broken);
    expect(await storage.head('at once')).toBeUndefined();
  });

  test('a second error of a body whose put has failed is ignored', async () => {
    const { storage } = open();
    const body = new PassThrough({ autoDestroy: false });
    const put = storage.put('again', body, { bytes: 10 });
    body.emit('error', new Broken());
    await expect(put).rejects.toEqual(broken);
    body.emit('error', new Broken());
    expect(await storage.head('again')).toBeUndefined();
  });
}
