import type { Storage } from '../../storage/storage.ts';
import type { AssetVersion } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import { compareVersions } from '../compare-versions.ts';
import { differencesAmong, type Finding } from '../finding.ts';

/** Compares each object of a version, a second time if one could not be read. `moving`: the version was removed meanwhile. */
export async function checkVersion(
  deps: { store: Store; storage: Storage },
  version: AssetVersion,
  options: { deep?: boolean; signal: AbortSignal },
): Promise<Finding[]> {
  const compare = () => compareVersions(deps, [version], { ...options, counts: { bytesRead: 0, archived: 0 } });
  const findings = await compare();
  return differencesAmong(findings).some(({ mark }) => mark === '!') ? compare() : findings;
}
