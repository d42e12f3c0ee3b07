import { afterAll, expect, test } from 'vitest';
import { ask } from '../../support/database.ts';
import { newStore } from '../records.ts';

const hour = 3_600_000;
const day = 24 * hour;

const opened = await newStore();
afterAll(() => opened.close());

const take = () => opened.store.chores.take('removal', hour, { graceMs: day });
const dueAt = async () => new Date((await ask(opened.url, `SELECT due_at FROM chores`))[0]!.due_at as string).getTime();
const setDue = (at: string) => ask(opened.url, `UPDATE chores SET due_at = ${at}`);

test('a chore that removes something is not due in the first day of a database', async () => {
  expect(await take()).toBe(false);
  expect((await dueAt()) - Date.now()).toBeGreaterThan(day - hour);
  await setDue('now()');
  expect(await take()).toBe(true);
  expect((await dueAt()) - Date.now()).toBeLessThan(2 * hour);
  expect(await take()).toBe(false);
});

test('a chore that removes something is put off by a day if it is late by more than that', async () => {
  await setDue(`now() - interval '23 hours'`);
  expect(await take()).toBe(true);
  // As with a clock that is two days ahead.
  await setDue(`now() - interval '2 days'`);
  const took = await Promise.all(Array.from({ length: 4 }, take));
  expect(took).toEqual([false, false, false, false]);
  expect((await dueAt()) - Date.now()).toBeGreaterThan(day - hour);
  await setDue('now()');
  expect(await take()).toBe(true);
});
