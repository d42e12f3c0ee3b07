import type { VerificationLine } from '../store/database/schema.ts';
import { inspect } from './compare-objects.ts';
import { nothingFound } from './counts.ts';
import { expectedOf } from './expected-objects.ts';
import type { VerifyDeps } from './verify.ts';

/**
 * Checks each object of an asset in the bucket. An object that a worker is changing has no result.
 * @throws Error if the bucket cannot be used, or the reason of `signal`
 */
export async function checkAsset(
  deps: Pick<VerifyDeps, 'store' | 'storage'>,
  assetId: string,
  signal: AbortSignal,
): Promise<VerificationLine[]> {
  const asset = await deps.store.contents.get(assetId);
  const pairs = (asset ? expectedOf(asset) : []).map((left) => ({ key: left.key, left, right: 'unlisted' as const }));
  const found = await inspect(deps, pairs, {
    one: true,
    counts: { ...nothingFound },
    seen: [],
    copied: [],
    hashed: [],
    signal,
  });
  return found.filter((line) => line !== undefined);
}
