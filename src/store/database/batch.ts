/** Maximum of calls in one statement. */
const most = 16;

/**
 * Collects calls of one turn of the event loop, or during a running statement, into one statement. If it fails, each call is
 * made alone, so that one cannot fail the others.
 * @param together returns one result for each item, in their order
 */
export function batched<Item, Result>(together: (items: Item[]) => Promise<Result[]>) {
  interface Call {
    item: Item;
    resolve: (result: Result) => void;
    reject: (error: unknown) => void;
  }
  const waiting: Call[] = [];
  let running = 0;
  let soon: NodeJS.Immediate | undefined;

  async function make(calls: Call[]): Promise<void> {
    try {
      const results = await together(calls.map(({ item }) => item));
      for (const [i, { resolve }] of calls.entries()) resolve(results[i]!);
    } catch (error) {
      if (calls.length === 1) calls[0]!.reject(error);
      else await Promise.all(calls.map((call) => make([call])));
    }
  }

  async function run(): Promise<void> {
    clearImmediate(soon);
    soon = undefined;
    const calls = waiting.splice(0);
    running++;
    await make(calls);
    running--;
    if (waiting.length > 0) void run();
  }

  return (item: Item): Promise<Result> =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject });
      if (waiting.length >= most) void run();
      else if (running === 0) soon ??= setImmediate(run);
    });
}
