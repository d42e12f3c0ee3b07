import type { Storage } from '../../storage/storage.ts';

/** The first numbered key without an object. A file that was written as evidence is never replaced. */
export async function unusedObjectKey(storage: Storage, keyOf: (number: number) => string): Promise<string> {
  for (let number = 1; ; number++) {
    const key = keyOf(number);
    if ((await storage.head(key)) === undefined) return key;
  }
}
