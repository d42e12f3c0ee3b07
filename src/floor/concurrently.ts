/**
 * Calls `work` for each item, at most `limit` at a time. Returns the results in the order of the items.
 * After an error it starts no other items, waits for those that have started, and throws the first error.
 */
export async function concurrently<T, R>(
  items: readonly T[],
  limit: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  const entries = items.entries();
  const errors: unknown[] = [];
  const worker = async () => {
    for (const [index, item] of entries) {
      if (errors.length > 0) return;
      try {
        results[index] = await work(item);
      } catch (error) {
        errors.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  if (errors.length > 0) throw errors[0];
  return results;
}
