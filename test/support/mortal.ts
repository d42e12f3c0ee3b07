/** The process of a worker has died: none of its calls does anything any longer. */
class Crashed extends Error {
  override readonly name = 'Crashed';
}

/**
 * A process that dies before its step `at`: from then on, each of its calls fails. Steps are calls that write to the database
 * or the bucket, and each object that a purge yields; `reading` are names of calls that are none. `life` is aborted when it dies.
 */
export function mortal(at: number, life = new AbortController()) {
  let steps = 0;
  const step = () => {
    if (++steps < at) return;
    const crashed = new Crashed(`died before step ${at}`);
    life.abort(crashed);
    throw crashed;
  };
  async function* each(results: AsyncIterable<unknown>) {
    for await (const result of results) {
      step();
      yield result;
    }
  }
  return function wrap<T extends object>(of: T, reading: string[] = []): T {
    return new Proxy(of, {
      get(target, name) {
        const value = Reflect.get(target, name);
        if (typeof value === 'object' && value !== null) return wrap(value, reading);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          const reads = reading.includes(String(name));
          if (!reads || steps >= at) step();
          const result = Reflect.apply(value, target, args);
          return !reads && Symbol.asyncIterator in Object(result) ? each(result) : result;
        };
      },
    });
  };
}

/** Whether this work died. */
export const died = (work: Promise<unknown>): Promise<boolean> =>
  work.then(
    () => false,
    (error) => {
      if (error instanceof Crashed) return true;
      throw error;
    },
  );
