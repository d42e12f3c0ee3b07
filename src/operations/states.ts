import { z } from 'zod';
import type { AssetState } from '../store/database/schema.ts';
import { count } from './fields.ts';

export const assetStates = [
  'pending',
  'processing',
  'transferring',
  'mirrored',
  'unavailable',
  'failed',
  'gone',
] as const;

export const stateCounts = z.object(
  Object.fromEntries(assetStates.map((state) => [state, count])) as Record<AssetState, typeof count>,
);

interface Counted {
  state: AssetState;
  leftOut: boolean;
  count: number;
}

/** How many are in each state; those in which none is are 0. What the settings leave out is in none. */
export function byState(rows: Counted[]): Record<AssetState, number> {
  const counts = Object.fromEntries(assetStates.map((state) => [state, 0])) as Record<AssetState, number>;
  for (const { state, leftOut, count } of rows) if (!leftOut) counts[state] += count;
  return counts;
}

/** How many the settings leave out. */
export const leftOut = (rows: Counted[]): number => rows.reduce((sum, row) => (row.leftOut ? sum + row.count : sum), 0);
