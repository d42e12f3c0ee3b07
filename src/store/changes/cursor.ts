import type { Position } from '../database/position.ts';

/** Contains the id of the feed, because positions mean nothing in another one. */
export const cursorOf = (feed: string, { xact, id }: Position) => `${feed}-${xact}-${id}`;

/** Undefined: it is not a cursor. */
export function readCursor(cursor: string): (Position & { feed: string }) | undefined {
  const [, feed, xact, id] = /^([\da-f]{8})-(\d{1,19})-(\d{1,15})$/.exec(cursor) ?? [];
  return feed === undefined ? undefined : { feed, xact: xact!, id: Number(id) };
}
