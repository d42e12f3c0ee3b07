import { beforeEach, describe, expect, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import { until } from '../../support/until.ts';
import { bytesOf, collected, MiB, streaming } from '../bodies.ts';
import { Broken } from './ground.ts';

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
