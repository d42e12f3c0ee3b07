/** Calls `work` for each item, `lanes` at a time. Returns the results in the order of the items; the first error ends it. */
export async function inLanes<T, R>(items: readonly T[], lanes: number, work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  const next = items.entries();
  const lane = async () => {
    for (const [at, item] of next) results[at] = await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(lanes, items.length) }, lane));
  return results;
}
