/** Who waits for others does so no longer than this, in milliseconds; and so many are done without waiting. */
const gatherMs = 10;
const enough = 16;

/**
 * Calls that come within a moment are done by one statement: those of one turn of the event loop, and while one is under way
 * those that come meanwhile. A `patient` call waits a moment for others as well, which costs nobody anything where many are
 * in hand. What a group fails at, each of it tries alone: so one cannot take the others with it.
 * @param together one result for each, in their order
 */
export function gathered<Item, Result>(together: (items: Item[]) => Promise<Result[]>) {
  interface Waiting {
    item: Item;
    resolve: (result: Result) => void;
    reject: (error: unknown) => void;
  }
  let group: Waiting[] = [];
  let hurry = false;
  let underWay = 0;
  let soon: NodeJS.Immediate | undefined;
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

  async function go(): Promise<void> {
    clearImmediate(soon);
    clearTimeout(timer);
    soon = timer = undefined;
    const waiting = group;
    group = [];
    hurry = false;
    underWay++;
    await run(waiting);
    underWay--;
    if (underWay === 0 && hurry) void go();
  }

  return (item: Item, patient = false): Promise<Result> =>
    new Promise((resolve, reject) => {
      group.push({ item, resolve, reject });
      hurry ||= !patient;
      if (group.length >= enough) void go();
      else if (hurry && underWay === 0) soon ??= setImmediate(go);
      else timer ??= setTimeout(go, gatherMs);
    });
}
