import { Kysely, PostgresDialect } from 'kysely';
import { Migrator } from 'kysely/migration';
import pg from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createLog } from '../../src/log.ts';
import { migrate, migrations } from '../../src/store/migrations.ts';
import { openStore } from '../../src/store/store.ts';
import { newDatabase } from '../support/database.ts';
import { firstRelease } from './first-release.ts';
import { silent } from './records.ts';

let database: Awaited<ReturnType<typeof newDatabase>>;
let client: pg.Client;
// biome-ignore lint/suspicious/noExplicitAny: no schema yet
let db: Kysely<any>;

beforeEach(async () => {
  database = await newDatabase();
  client = new pg.Client({ connectionString: database.url });
  await client.connect();
  db = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: database.url }) }) });
});
afterEach(async () => {
  await client.end();
  await db.destroy();
  await database.drop();
});

/** Brings the schema to where the release was whose last migration this is. */
async function migrateTo(name: string): Promise<void> {
  const provider = { getMigrations: async () => migrations };
  const { error } = await new Migrator({ db, provider }).migrateTo(name);
  if (error) throw error;
}

/** Counts of assets by state: as they are kept, and as they are when all are counted. */
async function counts(): Promise<object[][]> {
  const kept = `SELECT state, sum(assets)::int AS n, sum(bytes)::int AS bytes FROM
    (SELECT * FROM asset_counts UNION ALL SELECT * FROM asset_count_changes) AS c GROUP BY 1 HAVING sum(assets) <> 0 ORDER BY 1`;
  const counted =
    'SELECT state, count(*)::int AS n, coalesce(sum(bytes), 0)::int AS bytes FROM assets GROUP BY 1 ORDER BY 1';
  return [(await client.query(kept)).rows, (await client.query(counted)).rows];
}

const steps = Object.keys(migrations).sort();

test('a worker of the first release goes on while the schema is brought up to date, one migration after the other', async () => {
  await migrateTo('0001_start');
  const old = firstRelease(client);
  await old.connects('c1', 'ada', 'acme');
  await old.syncs('c1', 's-start');
  const start = ['kept', 'broken', 'moving', 'waiting'];
  await old.lists('c1', 'acme', start);
  await old.mirrors('kept', await old.takes('kept'));
  await old.fails('broken', await old.takes('broken'), 'no file');
  const turn = await old.takes('moving');
  await old.beginsUpload('moving', turn);
  expect(await old.storesPart('moving', turn, 1)).toBe(1);
  await old.ends('s-start');

  // What it does all day, at each schema there has ever been since.
  for (const [index, step] of steps.slice(1).entries()) {
    await migrateTo(step);
    expect(await old.storesPart('moving', turn, index + 2), step).toBe(1);
    const [syncId, one, other] = ['s', 'a', 'b'].map((kind) => `${kind}-${step}`) as [string, string, string];
    await old.syncs('c1', syncId);
    await old.lists('c1', 'acme', [one, other]);
    await old.listsAgain('kept', `after ${step}.mp4`);
    await old.mirrors('kept', await old.takes('kept'));
    await old.mirrors(one, await old.takes(one));
    await old.fails(other, await old.takes(other), 'gone');
    await old.ends(syncId);
    expect(await old.rotates('c1', index + 1, `tokens ${index}`), step).toBe(1);
  }

  // And the newest release finds all of it, and works on with it.
  const many = steps.length - 1;
  const store = await openStore({ url: database.url, log: silent });
  try {
    const [kept, counted] = await counts();
    expect(kept).toEqual(counted);
    expect(counted).toEqual([
      { state: 'failed', n: 1 + many, bytes: 0 },
      { state: 'mirrored', n: 1 + many, bytes: 1000 * (1 + many) },
      { state: 'pending', n: 1, bytes: 0 },
      { state: 'transferring', n: 1, bytes: 0 },
    ]);
    expect(await store.connections.list()).toMatchObject([{ id: 'c1', status: 'active', tokenVersion: 1 + many }]);
    expect(await store.assets.get('kept')).toMatchObject({
      name: `after ${steps.at(-1)}.mp4`,
      leftOut: null,
      beside: {},
    });
    expect(await store.assets.parts('moving')).toHaveLength(1 + many);
    const { rows: facets } = await client.query('SELECT id, name FROM asset_facets ORDER BY id');
    expect(facets).toEqual((await client.query('SELECT id, name FROM assets ORDER BY id')).rows);
    const { rows: events } = await client.query('SELECT kind FROM events ORDER BY xact, id');
    expect(events.map(({ kind }) => kind)).toEqual(['connection.connected', ...Array(1 + many).fill('asset.failed')]);
    expect(await old.storesPart('moving', turn, 99)).toBe(1);
    await old.mirrors('moving', turn);
    expect(await store.assets.get('moving')).toMatchObject({ state: 'mirrored', attempts: 0 });
  } finally {
    await store.close();
  }
});

test('a database of a newer release is left as it is, unless that has taken something away', async () => {
  const lines: { msg: string; migrations?: string[] }[] = [];
  const destination = { write: (line: string) => lines.push(JSON.parse(line)) } as never;
  const log = createLog({ level: 'info', pretty: false, destination });
  const done: string[] = [];
  const up = (name: string) => ({ up: async () => void done.push(name) });
  await migrate(db, log, { ...migrations, '9001_more': up('9001_more') });
  expect([done, lines]).toEqual([['9001_more'], []]);

  // The release before it starts all the same, as often as it likes.
  for (let start = 0; start < 2; start++) {
    const store = await openStore({ url: database.url, log });
    expect(await store.connections.list()).toEqual([]);
    await store.close();
  }
  expect(lines.map(({ msg, migrations }) => ({ msg, migrations }))).toEqual(
    Array(2).fill({ msg: 'the database is of a newer release; this one goes on beside it', migrations: ['9001_more'] }),
  );
  const { rows } = await client.query('SELECT name FROM kysely_migration ORDER BY name');
  expect(rows.map(({ name }) => name)).toEqual([...steps, '9001_more']);

  await migrate(db, log, { ...migrations, '9001_more': up('9001_more'), '9002_contract_names': up('9002') });
  await expect(openStore({ url: database.url, log })).rejects.toThrow(
    'the database is of a newer release (9002_contract_names), and this one cannot work with it any more; start that release',
  );
});
