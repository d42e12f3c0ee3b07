import { z } from 'zod';
import { assetStates } from '../store/assets/counts.ts';
import type { AssetState } from '../store/database/schema.ts';

/** Text that PostgreSQL can store: no NUL, no lone surrogate. */
export const text = z
  .string()
  .min(1)
  .max(1000)
  .refine((value) => !value.includes('\0') && value.isWellFormed(), 'expected plain text');

export const idParams = z.object({ id: text });

/** A time in an answer: ISO 8601, UTC. */
export const time = z.iso.datetime();
/** A number of things, or of bytes. */
export const count = z.int().min(0);

/** `1 company`, `2 companies` */
export const numberOf = (n: number, one: string, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

export const stateCounts = z.object(
  Object.fromEntries(assetStates.map((state) => [state, count])) as Record<AssetState, typeof count>,
);
