import { createHash } from 'node:crypto';

export type Random = ReturnType<typeof createRandom>;

/** Numbers that depend on a text alone, the same on every machine (mulberry32). */
export function createRandom(text: string) {
  let state = createHash('sha256').update(text).digest().readUInt32BE(0);
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const between = (least: number, most: number) => least + Math.floor(next() * (most - least + 1));
  return {
    next,
    /** A whole number, both ends included. */
    between,
    chance: (share: number) => next() < share,
    pick: <T>(things: readonly T[]): T => things[between(0, things.length - 1)]!,
    shuffled<T>(things: readonly T[]): T[] {
      const deck = [...things];
      for (let i = deck.length - 1; i > 0; i--) {
        const j = between(0, i);
        [deck[i], deck[j]] = [deck[j]!, deck[i]!];
      }
      return deck;
    },
  };
}
