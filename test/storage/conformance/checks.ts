import { beforeAll, expect, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import { type Ground, keysIn } from './ground.ts';

/** The guarantees of `check`. */
export function checks(open: () => Ground): void {
  let ground: Ground;
  let storage: Storage;
  beforeAll(() => {
    ground = open();
    storage = ground.storage;
  });
  const keys = (prefix: string) => keysIn(storage, prefix);

  test('a check succeeds if objects can be written, and leaves none behind', async () => {
    const before = await keys('');
    await storage.check();
    expect(await keys('')).toEqual(before);
    expect(await ground.leftovers()).toEqual([]);
  });
}
