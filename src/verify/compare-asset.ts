import type { VerificationLine } from '../store/database/schema.ts';
import type { AssetContents } from '../store/verifications/contents.ts';
import { type CompareDeps, compareObjects, type Pair } from './compare-objects.ts';
import { nothingFound } from './counts.ts';
import { expectedOf } from './expected-objects.ts';

/** The objects of an asset, to be requested from the bucket. */
export const pairsOf = (asset: AssetContents): Pair[] =>
  expectedOf(asset).map((expected) => ({ key: expected.key, expected, listed: 'unlisted' }));

/** Requests each object of an asset from the bucket. The findings are in the order of the keys. */
export async function compareAsset(
  deps: CompareDeps,
  asset: AssetContents,
  options: { deep?: boolean; signal: AbortSignal },
) {
  const counts = { ...nothingFound };
  return { ...(await compareObjects(deps, pairsOf(asset), { ...options, skipForeign: true, counts })), counts };
}

/**
 * Checks each object of an asset in the bucket. An object that a worker is changing has no finding.
 * @throws Error if the bucket cannot be used, or the reason of `signal`
 */
export async function checkAsset(deps: CompareDeps, assetId: string, signal: AbortSignal): Promise<VerificationLine[]> {
  const asset = await deps.store.contents.get(assetId);
  if (!asset) return [];
  const { findings } = await compareAsset(deps, asset, { signal });
  return findings.filter((finding) => finding !== 'moving');
}
