import { checkDays } from './check-days.ts';
import { checkObjects, type ObjectCounts } from './check-objects.ts';
import type { Context, Finding } from './finding.ts';
import { readChain } from './read-chain.ts';

export interface Attested extends ObjectCounts {
  /** The trusted fingerprint; null: nothing is signed. */
  keyId: string | null;
  manifests: number;
  /** Inventories that are there and intact. */
  days: number;
  /** The day of the inventory with which the objects were compared; null: none is proven. */
  day: string | null;
  /** Objects and statements that are altered, missing or extra. */
  problems: number;
  /** Objects that were changed or removed on purpose after the inventory, are archived, or have no content hash in it. */
  unproven: number;
}

export const nothingAttested: Attested = {
  ...{ keyId: null, manifests: 0, days: 0, day: null, problems: 0, unproven: 0 },
  ...{ assets: 0, total: 0, objects: 0, bytes: 0 },
};

/**
 * Checks a copy without the database: signatures, chain, inventories, every object, every byte. Writes nothing. `key`: the
 * fingerprint to trust; default: that of the last manifest.
 */
export async function attest(
  context: Context,
  options: { key?: string | undefined; onProgress: (soFar: Readonly<Attested>) => void },
): Promise<Attested> {
  const result: Attested = { ...nothingAttested };
  const found = (finding: Finding) => {
    result[finding.what === 'unproven' ? 'unproven' : 'problems']++;
    context.found(finding);
  };
  const counted = { ...context, found };
  const { statements, count, trusted } = await readChain(counted, options.key);
  Object.assign(result, { keyId: trusted, manifests: count });
  const { last, days } = await checkDays(counted, statements);
  Object.assign(result, { days, day: last?.day ?? null, total: last?.assets ?? 0 });
  if (last) await checkObjects(counted, last, result, () => options.onProgress(result));
  else found({ what: 'missing', key: 'an intact signed inventory', after: null });
  return result;
}
