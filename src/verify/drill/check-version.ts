import type { Storage } from '../../storage/storage.ts';
import type { AssetVersion } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import type { ObjectResult } from '../compare-objects.ts';
import { compareVersions } from '../compare-versions.ts';

/** Compares each object of a version, a second time if one could not be read. `undefined`: the version was removed meanwhile. */
export async function checkVersion(
  deps: { store: Store; storage: Storage },
  version: AssetVersion,
  options: { deep?: boolean; signal: AbortSignal },
): Promise<ObjectResult[]> {
  const compare = () => compareVersions(deps, [version], { ...options, counts: { bytesRead: 0, archived: 0 } });
  const objects = await compare();
  return objects.some((object) => object?.mark === '!') ? compare() : objects;
}
