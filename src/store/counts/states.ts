import type { AssetState } from '../database/schema.ts';

/** How many assets are in a state, and the bytes of their media. `skipped`: a filter skips them. */
export interface Counted {
  state: AssetState;
  skipped: boolean;
  count: number;
  bytes: number;
}

export const assetStates = [
  'pending',
  'processing',
  'transferring',
  'mirrored',
  'unavailable',
  'failed',
  'gone',
] as const;

/** How many assets are in each state, without those that a filter skips. */
export function byState(rows: Pick<Counted, 'state' | 'skipped' | 'count'>[]): Record<AssetState, number> {
  const counts = Object.fromEntries(assetStates.map((state) => [state, 0])) as Record<AssetState, number>;
  for (const { state, skipped, count } of rows) if (!skipped) counts[state] += count;
  return counts;
}

/** How many assets a filter skips. */
export const skipped = (rows: Pick<Counted, 'state' | 'skipped' | 'count'>[]): number =>
  rows.reduce((sum, row) => (row.skipped ? sum + row.count : sum), 0);

/** How many assets have a file in the library: all without the unavailable and the gone ones. */
export const expectedOf = ({ unavailable: _, gone: __, ...rest }: Record<AssetState, number>): number =>
  Object.values(rest).reduce((sum, count) => sum + count, 0);
