/** A position in the order of changes: a transaction, and the id of a change in it. */
export interface ChangePosition {
  xact: string;
  id: number;
}

/** Contains the id of the feed, because positions mean nothing in another one. */
export const cursorOf = (feed: string, { xact, id }: ChangePosition) => `${feed}-${xact}-${id}`;

/** Undefined: it is not a cursor. */
export function readCursor(cursor: string): (ChangePosition & { feed: string }) | undefined {
  const [, feed, xact, id] = /^([\da-f]{8})-(\d{1,19})-(\d{1,15})$/.exec(cursor) ?? [];
  return feed === undefined ? undefined : { feed, xact: xact!, id: Number(id) };
}
