import { sql } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDatabase } from '../../../src/store/database/database.ts';
import { prepared } from '../../../src/store/database/prepared.ts';
import type { Database } from '../../../src/store/database/schema.ts';
import { newDatabase } from '../../support/database.ts';
import { silent } from '../records.ts';

let database: Awaited<ReturnType<typeof newDatabase>>;
let db: Database;

beforeAll(async () => {
  database = await newDatabase();
  db = await openDatabase({ url: database.url, log: silent });
});
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

const double = async (on: Database, number: number) => {
  const { rows } = await prepared(on, sql<{ twoTimes: number }>`SELECT ${number}::int * 2 AS two_times`);
  return rows[0]!.twoTimes;
};
const statements = async (on: Database) => {
  const { rows } = await sql<{ statement: string }>`
    SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%two_times'`.execute(on);
  return rows;
};

test('a prepared statement is parsed once for a connection, and gets its own values each time', async () => {
  await db.connection().execute(async (one) => {
    expect([await double(one, 1), await double(one, 21)]).toEqual([2, 42]);
    expect(await statements(one)).toEqual([{ statement: 'SELECT $1::int * 2 AS two_times' }]);
  });
});

test('a statement whose name the connection does not know is executed without it, as are all that follow', async () => {
  await db.connection().execute(async (one) => {
    await double(one, 1);
    // Like a pooler that gives the next transaction another connection.
    await sql`DEALLOCATE ALL`.execute(one);
    expect(await double(one, 21)).toBe(42);
    expect(await double(one, 22)).toBe(44);
    expect(await statements(one)).toEqual([]);
  });
});
