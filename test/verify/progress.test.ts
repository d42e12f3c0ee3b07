import { afterAll, expect, test } from 'vitest';
import type { VerificationPosition } from '../../src/store/database/schema.ts';
import { Progress } from '../../src/verify/progress.ts';
import { newStore } from '../store/records.ts';
import { why } from '../support/reasons.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());

test('failures of a verification count until it has compared something', async () => {
  await store.verifications.request({});
  /** One attempt, which saves these positions and then fails. Returns the number of failures in a row. */
  const attempt = async (...positions: VerificationPosition[]) => {
    const run = (await store.verifications.takeNext('owner', 60_000))!;
    const progress = new Progress(store, run, 'owner', new AbortController().signal);
    for (const position of positions) await progress.save([], position);
    return store.verifications.postpone(run.id, 'owner', why, 0);
  };
  const begin = { phase: 'objects', since: 1 } as const;
  expect(await attempt(begin)).toBe(1);
  expect(await attempt(begin)).toBe(2);
  expect(await attempt({ phase: 'library', syncs: {} }, begin)).toBe(3);
  expect(await attempt({ phase: 'objects', key: 'a' })).toBe(1);
  expect(await attempt()).toBe(2);
  expect(await attempt({ phase: 'assets', assetId: 'a' })).toBe(1);
});
