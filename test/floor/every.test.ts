import { expect, test } from 'vitest';
import { every } from '../../src/floor/every.ts';
import { until } from '../support/until.ts';

test('failures in a row are reported once, also if there is nothing to do between them', async () => {
  const results = ['error', 'not due', 'error', 'done', 'error', 'not due', 'not due', 'error'];
  const reported: number[] = [];
  let turn = -1;
  const repeated = every(
    1,
    async () => {
      const result = results[++turn];
      if (result === 'error') throw new Error('failed');
      return result;
    },
    { failed: () => reported.push(turn) },
  );
  await until('all turns', () => turn >= results.length);
  await repeated.stop();
  expect(reported).toEqual([0, 4]);
});
