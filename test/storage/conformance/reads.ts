import { beforeAll, describe, expect, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import { collected } from '../bodies.ts';
import { type Ground, keysIn, readFrom } from './ground.ts';

/** The guarantees of `get` and `head`, also where no object is. */
export function reads(open: () => Ground): void {
  let storage: Storage;
  beforeAll(() => {
    storage = open().storage;
  });
  const read = (key: string) => readFrom(storage, key);
  const keys = (prefix: string) => keysIn(storage, prefix);

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

    test('an object that was removed can be stored again', async () => {
      await storage.put('comes/back', 'first');
      await storage.remove('comes/back');
      await storage.put('comes/back', 'second');
      expect((await storage.head('comes/back'))?.bytes).toBe(6);
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
}
