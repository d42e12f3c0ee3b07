import { setImmediate } from 'node:timers/promises';
import { beforeAll, expect, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import { bytesOf, streaming } from '../bodies.ts';
import { Broken, type Ground, readFrom } from './ground.ts';

/** The guarantees of a `put` with a fence, and of one whose body is a buffer. */
export function fencedPuts(open: () => Ground): void {
  let ground: Ground;
  let storage: Storage;
  beforeAll(() => {
    ground = open();
    storage = ground.storage;
  });
  const read = (key: string) => readFrom(storage, key);

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
    // A fence that never answers does not keep the abort from ending the put.
    const again = new AbortController();
    const hanging = () => {
      void setImmediate().then(() => again.abort(reason));
      return new Promise<void>(() => {});
    };
    await expect(storage.put('at hand', text, { fence: hanging, signal: again.signal })).rejects.toBe(reason);
    // The error of a fence is passed on, although it looks like that of a store that cannot be reached.
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
}
