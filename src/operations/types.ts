import { unknownTypes } from '../source/answers.ts';
import type { Store } from '../store/store.ts';

/** A type that the library's description does not name may come with an asset; these have come with none. */
export async function strangeTypes(store: Store, types: string[]): Promise<string[]> {
  const strange: string[] = [];
  for (const type of new Set(unknownTypes(types))) {
    if ((await store.assets.search({ type, limit: 1 })).length === 0) strange.push(type);
  }
  return strange;
}
