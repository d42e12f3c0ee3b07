import { z } from 'zod';
import { Refused } from './refused.ts';

/** A cursor in a query. It may hold an id of 1,000 bytes twice, as JSON in base64url. */
export const givenCursor = z.string().max(8000).optional();

/** The position where the next page begins, as an opaque text. */
const cursorOf = (position: unknown): string => Buffer.from(JSON.stringify(position)).toString('base64url');

/** @throws Refused 400 if it is not a cursor of this list */
export function positionOf<T>(cursor: string | undefined, schema: z.ZodType<T>): T | undefined {
  if (cursor === undefined) return undefined;
  try {
    const json = Buffer.from(cursor, 'base64url');
    if (json.toString('base64url') !== cursor) throw new Error('not base64url');
    return schema.parse(JSON.parse(json.toString()));
  } catch {
    throw new Refused(
      400,
      'invalid_cursor',
      'This is not a cursor of this list. Pass nextCursor unchanged, or no cursor.',
    );
  }
}

/** A number in a query. */
export const numberIn = (least: number, most: number, otherwise: number) => {
  const error = `expected a whole number from ${least} to ${most}`;
  return z.coerce.number({ error }).int({ error }).min(least, { error }).max(most, { error }).default(otherwise);
};

/** `true` or `false` in a query. */
export const flag = z.union([z.boolean(), z.stringbool()], 'expected true or false').optional();

export const rowsOfPage = (otherwise: number) => numberIn(1, 250, otherwise);

/** A page and the cursor of the next one, from `limit` + 1 rows. */
export function pageOf<T>(rows: T[], limit: number, position: (last: T) => unknown) {
  return {
    rows: rows.slice(0, limit),
    nextCursor: rows.length > limit ? cursorOf(position(rows[limit - 1]!)) : null,
  };
}

export const nextCursor = z
  .string()
  .nullable()
  .describe('Pass it as `cursor` for the next page; null: this is the last.');
