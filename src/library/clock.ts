/** The service's clock. Lifetimes are tested by moving it, not by waiting. */
export type Clock = {
  now(): number;
  advance(milliseconds: number): void;
};

export function createClock(): Clock {
  let ahead = 0;
  return {
    now: () => Date.now() + ahead,
    advance: (milliseconds) => {
      ahead += Math.round(milliseconds);
    },
  };
}
