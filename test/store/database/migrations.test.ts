import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import pg from 'pg';
import { expect, test } from 'vitest';
import { ConfigurationError } from '../../../src/floor/errors.ts';
import { openStore } from '../../../src/store/store.ts';
import { newDatabase } from '../../support/database.ts';
import { spawned } from '../../support/spawned.ts';
import { silent } from '../records.ts';

const program = `
  import { createLog } from './src/floor/log.ts';
  import { openStore } from './src/store/store.ts';
  const store = await openStore({ url: process.env.DATABASE_URL, log: createLog({ level: 'silent', pretty: false }) });
  await store.check();
  await store.close();
`;

test('three processes that start at once migrate an empty database once', { tags: 'slow' }, async () => {
  const database = await newDatabase({ empty: true });
  try {
    const start = () =>
      promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program], {
        env: { ...spawned, DATABASE_URL: database.url },
      });
    await Promise.all([start(), start(), start()]);

    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    const { rows } = await client.query('SELECT name FROM kysely_migration');
    await client.end();
    expect(rows).toEqual([{ name: '0001_start' }]);
  } finally {
    await database.drop();
  }
});

test('many stores that open at once in one process migrate once, and can open again', { tags: 'slow' }, async () => {
  const database = await newDatabase({ empty: true });
  try {
    for (let round = 0; round < 2; round++) {
      const stores = await Promise.all(Array.from({ length: 8 }, () => openStore({ url: database.url, log: silent })));
      for (const store of stores) expect(await store.connections.list()).toEqual([]);
      await Promise.all(stores.map((store) => store.close()));
    }
  } finally {
    await database.drop();
  }
});

test('a start without a reachable database fails with the reason', async () => {
  const url = 'postgres://nobody@127.0.0.1:1/nothing';
  const error = await openStore({ url, log: silent }).catch((error) => error);
  expect(error).toBeInstanceOf(ConfigurationError);
  expect(error.problems).toEqual([
    'DATABASE_URL: nothing listens at 127.0.0.1:1 (ECONNREFUSED); start the server there, or correct DATABASE_URL.',
  ]);
});
