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

test('the end of failures is reported once', async () => {
  const results = ['done', 'error', 'not due', 'error', 'done', 'done'];
  const recovered: number[] = [];
  let turn = -1;
  const repeated = every(
    1,
    async () => {
      const result = results[++turn];
      if (result === 'error') throw new Error('failed');
      return result;
    },
    { failed: () => {}, recovered: () => recovered.push(turn) },
  );
  await until('all turns', () => turn >= results.length);
  await repeated.stop();
  expect(recovered).toEqual([4]);
});

test('waking during the work, or during the pause, ends a pause of an hour; stopping does, too', async () => {
  let turns = 0;
  const repeated = every(
    3_600_000,
    async () => {
      turns++;
      if (turns === 1) repeated.wake();
    },
    { failed: () => {}, later: true },
  );
  repeated.wake();
  await until('the second turn', () => turns === 2);
  repeated.wake();
  await until('the third turn', () => turns === 3);
  await repeated.stop();
  expect(turns).toBe(3);
});
