/**
 * How much longer `work` takes for eight times the length: about 8 if its time grows linearly, about 64 if quadratically.
 * The least of several measurements counts, of processor time, so that a busy machine does not matter.
 */
export function growth<T>(inputOf: (length: number) => T, work: (input: T) => unknown): number {
  const least = (length: number) => {
    const input = inputOf(length);
    let best = Infinity;
    for (let i = 0; i < 5; i++) {
      const before = process.cpuUsage();
      work(input);
      const { user, system } = process.cpuUsage(before);
      best = Math.min(best, user + system);
    }
    return best;
  };
  // Shorter than 0.1 ms is noise.
  return least(32_000) / Math.max(least(4000), 100);
}
