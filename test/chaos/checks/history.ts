/** A fault as it was, in epoch milliseconds. */
export interface Happened {
  number: number;
  name: string;
  of: string;
  from: number;
  to: number;
}

/** How long after a fault it may still be the cause of another request: stores retry, leases end. */
export const aftermath = 15_000;

export function overlaps(history: Happened[], from: number, to: number): boolean {
  return history.some((fault) => fault.from <= to && fault.to >= from);
}

export const clock = (time: number) => new Date(time).toISOString().slice(11, 23);
