/** So long the first of a group waits for others, in milliseconds; and so many are done without waiting. */
const gatherMs = 10;
const enough = 16;

/**
 * Calls that come within a moment are done by one statement. What a group fails at, each of it tries alone: so one cannot
 * take the others with it.
 * @param together one result for each, in their order
 */
export function gathered<Item, Result>(together: (items: Item[]) => Promise<Result[]>) {
  interface Waiting {
    item: Item;
    resolve: (result: Result) => void;
    reject: (error: unknown) => void;
  }
  let group: Waiting[] = [];
  let timer: NodeJS.Timeout | undefined;

  async function run(waiting: Waiting[]): Promise<void> {
    try {
      const results = await together(waiting.map(({ item }) => item));
      for (const [i, { resolve }] of waiting.entries()) resolve(results[i]!);
    } catch (error) {
      if (waiting.length === 1) waiting[0]!.reject(error);
      else await Promise.all(waiting.map((one) => run([one])));
    }
  }

  function go(): void {
    clearTimeout(timer);
    timer = undefined;
    const waiting = group;
    group = [];
    void run(waiting);
  }

  return (item: Item): Promise<Result> =>
    new Promise((resolve, reject) => {
      group.push({ item, resolve, reject });
      if (group.length >= enough) go();
      else timer ??= setTimeout(go, gatherMs);
    });
}
