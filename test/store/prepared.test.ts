import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PreparingClient } from '../../src/store/prepared.ts';
import { newDatabase } from '../support/database.ts';

let database: Awaited<ReturnType<typeof newDatabase>>;
let client: PreparingClient;
beforeAll(async () => {
  database = await newDatabase();
  client = new PreparingClient({ connectionString: database.url });
  await client.connect();
  await client.query('CREATE TABLE films (id int, name text); INSERT INTO films VALUES (1, $$a$$), (2, $$b$$)');
});
afterAll(async () => {
  await client?.end();
  await database?.drop();
});

const asked = async (text: string, values?: unknown[]) => (await (client as pg.Client).query(text, values)).rows;
const film = (id: number) => asked('SELECT * FROM films WHERE id = $1 /* prepared: film */', [id]);
const prepared = () => asked('SELECT name FROM pg_prepared_statements');

test('what is marked is prepared on the server itself, once, and outlasts what makes it void', async () => {
  expect(await film(1)).toEqual([{ id: 1, name: 'a' }]);
  expect(await prepared()).toEqual([]);

  expect(await client.findPooler()).toBe(true);
  for (const id of [1, 2, 1]) expect(await film(id)).toEqual([{ id, name: id === 1 ? 'a' : 'b' }]);
  expect(await asked('SELECT $1::int AS n', [3])).toEqual([{ n: 3 }]);
  expect(await prepared()).toEqual([{ name: expect.stringMatching(/^film [\da-f]{12} 0$/) }]);

  await client.query('ALTER TABLE films ADD COLUMN year int DEFAULT 1999');
  expect(await film(2)).toEqual([{ id: 2, name: 'b', year: 1999 }]);
  await client.query('DEALLOCATE ALL');
  expect(await film(1)).toEqual([{ id: 1, name: 'a', year: 1999 }]);
  expect(await prepared()).toEqual([{ name: expect.stringMatching(/ 2$/) }]);

  await client.query('DROP TABLE films');
  await expect(film(1)).rejects.toMatchObject({ code: '42P01' });
});
