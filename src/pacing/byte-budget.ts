export type Budget = ReturnType<typeof createBudget>;

/** Limits the bytes of parts that are in flight in one process to `total`. */
export function createBudget(total: number) {
  let free = total;
  const waiting: { bytes: number; go: () => void }[] = [];

  function next(): void {
    // First come, first served, so that a large part does not wait for ever.
    while (waiting[0] && waiting[0].bytes <= free) {
      const first = waiting.shift()!;
      free -= first.bytes;
      first.go();
    }
  }

  return {
    /** Waits until `bytes` are free. Returns a function that releases them. @throws the reason of `signal` */
    async take(bytes: number, signal: AbortSignal): Promise<() => void> {
      signal.throwIfAborted();
      // A part larger than the whole budget takes all of it.
      const claim = { bytes: Math.min(bytes, total), go: () => {} };
      await new Promise<void>((resolve, reject) => {
        const stop = () => {
          waiting.splice(waiting.indexOf(claim), 1);
          reject(signal.reason);
          next();
        };
        claim.go = () => {
          signal.removeEventListener('abort', stop);
          resolve();
        };
        signal.addEventListener('abort', stop, { once: true });
        waiting.push(claim);
        next();
      });
      return () => {
        free += claim.bytes;
        next();
      };
    },
  };
}
