import { expect, test } from 'vitest';
import { batched } from '../../../src/store/database/batch.ts';

test('calls at the same moment share one statement, each with its own result', async () => {
  const groups: number[][] = [];
  const double = batched(async (items: number[]) => {
    groups.push(items);
    return items.map((item) => item * 2);
  });
  const results = await Promise.all(Array.from({ length: 20 }, (_, i) => double(i)));
  expect(results).toEqual(Array.from({ length: 20 }, (_, i) => i * 2));
  // Sixteen are enough to begin with.
  expect(groups.map((group) => group.length)).toEqual([16, 4]);
  expect(await double(100)).toBe(200);
  expect(groups).toHaveLength(3);
});

test('calls during a running statement share the next one', async () => {
  const groups: { items: string[]; end: () => void }[] = [];
  const call = batched(async (items: string[]) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    groups.push({ items, end: resolve });
    await promise;
    return items;
  });
  const first = call('one');
  await expect.poll(() => groups).toHaveLength(1);
  const others = [call('two'), call('three')];
  groups[0]!.end();
  expect(await first).toBe('one');
  await expect.poll(() => groups).toHaveLength(2);
  groups[1]!.end();
  expect(await Promise.all(others)).toEqual(['two', 'three']);
  expect(groups.map(({ items }) => items)).toEqual([['one'], ['two', 'three']]);
});

test('a call that fails does not fail the others of its statement', async () => {
  const check = batched(async (items: string[]) => {
    if (items.includes('bad')) throw new Error(`not done: ${items.join(', ')}`);
    return items.map(() => 'done');
  });
  const found = await Promise.allSettled(['one', 'bad', 'two'].map((item) => check(item)));
  expect(found).toMatchObject([
    { value: 'done' },
    { reason: expect.objectContaining({ message: 'not done: bad' }) },
    { value: 'done' },
  ]);
});
