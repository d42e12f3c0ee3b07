/** If npm runs this process, one Ctrl-C reaches it twice within this time: from the terminal and from npm. */
const sameKeystrokeMs = 250;

/** The first signal asks for an orderly stop, the second ends at once. */
export function stopSignal(): AbortSignal {
  const stop = new AbortController();
  let first: { signal: string; at: number } | undefined;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      if (!first) {
        first = { signal, at: performance.now() };
        stop.abort();
      } else if (signal === 'SIGTERM' || signal !== first.signal || performance.now() - first.at > sameKeystrokeMs) {
        process.exit(signal === 'SIGINT' ? 130 : 143);
      }
    });
  }
  return stop.signal;
}
