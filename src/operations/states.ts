import type { AssetState } from '../store/schema.ts';

export const assetStates = [
  'pending',
  'processing',
  'transferring',
  'mirrored',
  'unavailable',
  'failed',
  'gone',
] as const;

/** How many are in each state; those in which none is are 0. */
export function byState(rows: { state: AssetState; count: number }[]): Record<AssetState, number> {
  const counts = Object.fromEntries(assetStates.map((state) => [state, 0])) as Record<AssetState, number>;
  for (const { state, count } of rows) counts[state] += count;
  return counts;
}
