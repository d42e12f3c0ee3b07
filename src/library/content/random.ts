import { hash } from 'node:crypto';

export type Random = {
  /** 0 to below 1. */
  next(): number;
  /** An integer from `from` to below `to`. */
  between(from: number, to: number): number;
  pick<T>(choices: readonly T[]): T;
  hex(length: number): string;
};

/** A generator (mulberry32) that is seeded with the hash of a name: the same name gives the same numbers. */
export function randomOf(...name: (string | number)[]): Random {
  return randomFrom(hash('sha256', name.join('\0'), 'buffer').readUInt32LE());
}

/** The same generator, seeded with an integer. */
export function randomFrom(state: number): Random {
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const between = (from: number, to: number) => from + Math.floor(next() * (to - from));
  return {
    next,
    between,
    pick: (choices) => choices[between(0, choices.length)]!,
    hex: (length) => Array.from({ length }, () => between(0, 16).toString(16)).join(''),
  };
}
