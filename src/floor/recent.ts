/** The result of `load`, loaded again once it is older than `maxAgeMs`. One result serves all callers, a failure too. */
export function recent<T>(load: () => Promise<T>): (maxAgeMs: number) => Promise<T> {
  let last: { at: number; result: Promise<T> } | undefined;
  return (maxAgeMs) => {
    if (!last || performance.now() - last.at > maxAgeMs) last = { at: performance.now(), result: load() };
    return last.result;
  };
}
