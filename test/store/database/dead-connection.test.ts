import type { Socket } from 'node:net';
import { Kysely, PostgresDialect, sql } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openPool } from '../../../src/store/database/database.ts';
import { newLine } from '../../storage/line.ts';
import { newDatabase } from '../../support/database.ts';
import { until } from '../../support/until.ts';
import { silent } from '../records.ts';

let database: Awaited<ReturnType<typeof newDatabase>>;
let line: Awaited<ReturnType<typeof newLine>>;
let db: Kysely<unknown>;

beforeAll(async () => {
  database = await newDatabase({ empty: true });
  line = await newLine(database.url);
  const url = new URL(database.url);
  url.port = new URL(line.endpoint).port;
  url.hostname = '127.0.0.1';
  const pool = openPool({ url: url.href, log: silent }, { max: 1, query_timeout: 2000 });
  db = new Kysely({ dialect: new PostgresDialect({ pool }) });
});
afterAll(async () => {
  await db?.destroy();
  await line?.close();
  await database?.drop();
});

const ask = (on: Kysely<unknown>) => sql`SELECT 1`.execute(on);

/** Drops all bytes of the connection that is in use. */
function drop(): void {
  let dead: Socket | undefined;
  line.set({
    request(chunk, _sent, { client }) {
      dead ??= client;
      return client === dead ? undefined : chunk;
    },
  });
}

test('a connection that no longer answers is closed, and the next query gets a new one', async () => {
  await ask(db);
  drop();
  await expect(ask(db)).rejects.toThrow('Query read timeout');
  await ask(db);
  await until('the dead connection to be closed', () => line.troubled === 0);
});

test('a connection that no longer answers in a transaction is closed after one timeout', async () => {
  const transaction = db.transaction().execute(async (tx) => {
    await ask(tx);
    drop();
    await expect(ask(tx)).rejects.toThrow('Query read timeout');
    await until('the dead connection to be closed', () => line.troubled === 0);
    await ask(tx);
  });
  await expect(transaction).rejects.toThrow('not queryable');
  await ask(db);
});

test('a query that PostgreSQL refuses leaves its connection in the pool', async () => {
  await ask(db);
  const before = line.accepted;
  await expect(sql`SELECT 1 / 0`.execute(db)).rejects.toThrow('division by zero');
  await ask(db);
  expect(line.accepted).toBe(before);
});
