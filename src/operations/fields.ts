import { z } from 'zod';
import type { Reason } from '../floor/reason-codes.ts';
import { renderReason } from '../floor/reasons.ts';
import { assetStates } from '../store/counts/states.ts';
import type { AssetState } from '../store/database/schema.ts';

/** Text that PostgreSQL can store: no NUL, no lone surrogate. */
export const text = z
  .string()
  .min(1, 'must not be empty')
  .max(1000, 'must have at most 1000 characters')
  .refine((value) => !value.includes('\0') && value.isWellFormed(), 'expected plain text');

export const idParams = z.object({ id: text });

/** A time in an answer: ISO 8601, UTC. */
export const time = z.iso.datetime();
/** Epoch milliseconds as a time in an answer. Null: none, or not of a year with four digits. */
export const isoOf = (ms: number | null): string | null =>
  ms !== null && ms >= Date.UTC(0, 0) && ms < Date.UTC(10_000, 0) ? new Date(ms).toISOString() : null;
type IsoTimes<T> = { [K in keyof T]: T[K] extends Date ? string : T[K] extends Date | null ? string | null : T[K] };
/** A row with its times as in answers. */
export const isoTimes = <T extends object>(row: T) =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [name, value instanceof Date ? value.toISOString() : value]),
  ) as IsoTimes<T>;
/** A count, or a number of bytes. */
export const count = z.int().min(0);

/** `1 company`, `2 companies` */
export const numberOf = (n: number, one: string, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

// Not an enum: during an update, a newer process may have stored a code that this one does not know.
export const reasonAnswer = z
  .looseObject({
    code: z.string().describe('Stable; docs/reference/api.md lists the codes and the data of each.'),
    text: z.string().describe('The reason as a sentence. Its wording may change.'),
  })
  .meta({ id: 'Reason' });

/** A reason as answers have it: the code, its data, and the sentence. */
export const withText = (reason: Reason) => ({ ...reason, text: renderReason(reason) });
export const shownReason = (reason: Reason | null) => reason && withText(reason);

export const stateCounts = z.object(
  Object.fromEntries(assetStates.map((state) => [state, count])) as Record<AssetState, typeof count>,
);
