import { z } from 'zod';
import { Refused } from './refused.ts';

/** Where the next page begins, in a form that means nothing to who passes it on. */
export const cursorOf = (place: unknown): string => Buffer.from(JSON.stringify(place)).toString('base64url');

/** @throws Refused 400 when we did not make it for a listing of this kind */
export function placeOf<T>(cursor: string | undefined, schema: z.ZodType<T>): T | undefined {
  if (cursor === undefined) return undefined;
  try {
    const json = Buffer.from(cursor, 'base64url');
    if (json.toString('base64url') !== cursor) throw new Error('not base64url');
    return schema.parse(JSON.parse(json.toString()));
  } catch {
    throw new Refused(
      400,
      'invalid_cursor',
      'The cursor is not one of ours. Pass nextCursor as it was given, or none.',
    );
  }
}

/** A number in an address. */
export const numberIn = (least: number, most: number, otherwise: number) => {
  const error = `expected a whole number from ${least} to ${most}`;
  return z.coerce.number({ error }).int({ error }).min(least, { error }).max(most, { error }).default(otherwise);
};

/** Rows of a page; with more of them an answer would take too long. */
export const rowsOfPage = (otherwise: number) => numberIn(1, 250, otherwise);

/** Of a page that was asked for with one row more than it may hold: the page, and the cursor of the next. */
export function pageOf<T>(rows: T[], limit: number, place: (last: T) => unknown) {
  return {
    rows: rows.slice(0, limit),
    nextCursor: rows.length > limit ? cursorOf(place(rows[limit - 1]!)) : null,
  };
}

export const nextCursor = z
  .string()
  .nullable()
  .describe('Pass it as `cursor` for the next page; null: this is the last.');
