import type { VerificationLine } from '../store/database/schema.ts';
import { inspectAsset } from './inspect-asset.ts';
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
  if (!asset) return [];
  const { findings } = await inspectAsset(deps, asset, { signal });
  return findings.filter((line) => line !== undefined);
}
