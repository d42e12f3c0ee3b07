/** The clocks of hosts differ by less than this; a smaller step of a clock is harmless. */
export const clockToleranceMs = 60_000;

/**
 * Compares the wall clock with the monotonic one. The function that it returns tells by how many milliseconds the wall
 * clock was set since the last step that it told: negative when it was set back, 0 for less than the tolerance.
 */
export function watchClock(wall = () => Date.now(), monotonic = () => performance.now()): () => number {
  let offset = wall() - monotonic();
  return () => {
    const now = wall() - monotonic();
    const step = now - offset;
    if (Math.abs(step) < clockToleranceMs) return 0;
    offset = now;
    return step;
  };
}
