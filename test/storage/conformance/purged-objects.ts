import { describe, expect, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import { keysIn } from './ground.ts';

/** The guarantees of `purge`, which depend on whether a bucket has versions. */
export function purgedObjects(open: () => Storage): void {
  describe('a purge', () => {
    const found = async (at: string, options = {}) =>
      (await Array.fromAsync(open().purge(at, options))).map(({ key, bytes }) => `${key} ${bytes}`).sort();
    const keys = (prefix: string) => keysIn(open(), prefix);

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
