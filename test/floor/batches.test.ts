import { expect, test } from 'vitest';
import { batches } from '../../src/floor/batches.ts';

test.each([
  [0, []],
  [2, [[0, 1]]],
  [5, [[0, 1], [2, 3], [4]]],
])('%i items come in batches of two, and none is empty', async (count, expected) => {
  async function* items() {
    for (let item = 0; item < count; item++) yield item;
  }
  expect(await Array.fromAsync(batches(items(), 2))).toEqual(expected);
});
