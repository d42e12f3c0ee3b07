import { expect, test } from 'vitest';
import { gathered } from '../../src/store/gather.ts';

test('calls of a moment are done together, each with its own result', async () => {
  const groups: number[][] = [];
  const double = gathered(async (items: number[]) => {
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

test('one that cannot be done fails alone', async () => {
  const check = gathered(async (items: string[]) => {
    if (items.includes('bad')) throw new Error(`not done: ${items.join(', ')}`);
    return items.map(() => 'done');
  });
  const found = await Promise.allSettled(['one', 'bad', 'two'].map(check));
  expect(found).toMatchObject([
    { value: 'done' },
    { reason: expect.objectContaining({ message: 'not done: bad' }) },
    { value: 'done' },
  ]);
});
