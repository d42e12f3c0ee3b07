import { afterAll, expect, test } from 'vitest';
import { dayMs } from '../../../src/floor/units.ts';
import { ask } from '../../support/database.ts';
import { newStore, running } from '../records.ts';

const opened = await newStore();
const { store, url } = opened;
afterAll(() => opened.close());

test('the age of the last drill counts from the first connection until one has ended', async () => {
  const { drills } = store;
  expect(await drills.lastEndedAt()).toBeNull();
  await running(store, 'acme');
  await ask(url, `UPDATE connections SET connected_at = now() - interval '3 days'`);
  const days = async () => Math.round((Date.now() - (await drills.lastEndedAt())!.getTime()) / dayMs);
  expect(await days()).toBe(3);
  await drills.request({ sample: 1 });
  expect(await days()).toBe(3);
  await ask(url, `UPDATE drills SET status = 'failed', finished_at = now() - interval '1 day'`);
  expect(await days()).toBe(1);
});

test('a drill that kills its process ends after three attempts, and a shutdown does not count as one', async () => {
  const { drills } = store;
  const id = await drills.request({ sample: 1 });
  for (let shutdown = 0; shutdown < 5; shutdown++) {
    expect(await drills.take('stopped', 60_000)).toMatchObject({ id });
    await drills.release(id, 'stopped');
  }
  for (const owner of ['first', 'second', 'third']) {
    expect(await drills.failAbandoned()).toBeUndefined();
    expect(await drills.take(owner, -1000)).toMatchObject({ id });
  }
  expect(await drills.failAbandoned()).toBe(id);
  expect(await drills.failAbandoned()).toBeUndefined();
  expect(await drills.take('fourth', 60_000)).toBeUndefined();
  expect(await drills.get(id)).toMatchObject({ status: 'failed', error: { code: 'process_died', attempt: 3 } });
  expect(await ask(url, `SELECT kind FROM events WHERE kind LIKE 'drill.%'`)).toEqual([{ kind: 'drill.failed' }]);
});

test('the last attempt of a drill is not ended while its process holds the lease', async () => {
  const id = await store.drills.request({ sample: 1 });
  for (const owner of ['first', 'second']) await store.drills.take(owner, -1000);
  await store.drills.take('third', 60_000);
  expect(await store.drills.failAbandoned()).toBeUndefined();
  await store.drills.release(id, 'third');
  expect(await store.drills.failAbandoned()).toBeUndefined();
  expect(await store.drills.take('third', 60_000)).toMatchObject({ id });
});
