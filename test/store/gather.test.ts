import { setImmediate as turn } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';
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

test('what comes while a group is under way is done together behind it, or beside it when it does not end', async () => {
  const groups: { items: string[]; end: () => void }[] = [];
  const call = gathered(async (items: string[]) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    groups.push({ items, end: resolve });
    await promise;
    return items;
  });
  const first = call('one');
  await vi.waitFor(() => expect(groups).toHaveLength(1));
  const behind = [call('two'), call('three')];
  groups[0]!.end();
  expect(await first).toBe('one');
  await vi.waitFor(() => expect(groups).toHaveLength(2));
  const beside = call('four');
  await vi.waitFor(() => expect(groups).toHaveLength(3));
  expect(groups.map(({ items }) => items)).toEqual([['one'], ['two', 'three'], ['four']]);
  for (const { end } of groups) end();
  expect(await Promise.all([...behind, beside])).toEqual(['two', 'three', 'four']);
});

test('the patient wait for others, unless one comes that does not', async () => {
  const groups: string[][] = [];
  const call = gathered(async (items: string[]) => {
    groups.push(items);
    return items;
  });
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const one = call('one', true);
  await vi.advanceTimersByTimeAsync(10);
  await one;
  const patient = call('two', true);
  await turn();
  await turn();
  expect(groups).toEqual([['one']]);
  await Promise.all([call('three'), patient]);
  expect(groups).toEqual([['one'], ['two', 'three']]);
});

test('one that cannot be done fails alone', async () => {
  const check = gathered(async (items: string[]) => {
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
