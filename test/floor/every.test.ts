import { expect, test } from 'vitest';
import { every } from '../../src/floor/every.ts';
import { until } from '../support/until.ts';

/** Repeats work whose turns end like this. Returns the turns at which failures, and their ends, were reported. */
async function reportsOf(results: ('done' | 'not due' | 'error')[]) {
  const failed: number[] = [];
  const recovered: number[] = [];
  let turn = -1;
  const repeated = every(
    1,
    async () => {
      const result = results[++turn];
      if (result === 'error') throw new Error('failed');
      return result;
    },
    { failed: () => failed.push(turn), recovered: () => recovered.push(turn) },
  );
  await until('all turns', () => turn >= results.length);
  await repeated.stop();
  return { failed, recovered };
}

test('failures in a row are reported once, also if there is nothing to do between them', async () => {
  const { failed } = await reportsOf(['error', 'not due', 'error', 'done', 'error', 'not due', 'not due', 'error']);
  expect(failed).toEqual([0, 4]);
});

test('the end of failures is reported once', async () => {
  const { recovered } = await reportsOf(['done', 'error', 'not due', 'error', 'done', 'done']);
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
