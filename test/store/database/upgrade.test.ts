import { Kysely, sql } from 'kysely';
import pg from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createLog } from '../../../src/floor/log.ts';
import { MigrationDialect, migrate, migrations } from '../../../src/store/database/migrations.ts';
import { openStore } from '../../../src/store/store.ts';
import { newDatabase } from '../../support/database.ts';
import { newScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';
import { silent } from '../records.ts';

const open = (url: string) =>
  new Kysely<unknown>({ dialect: new MigrationDialect({ pool: new pg.Pool({ connectionString: url }) }) });

test('a migration does not disturb a process that mirrors', { tags: 'slow' }, async () => {
  const scene = await newScene();
  const db = open(scene.ground.environment.DATABASE_URL!);
  const mirrored = async () => {
    const { rows } = await sql<{ n: number }>`SELECT count(*)::int AS n FROM assets WHERE state = 'mirrored'`.execute(
      db,
    );
    return rows[0]!.n;
  };
  try {
    const ids: string[] = [];
    for (let n = 0; n < 200; n++) ids.push(await scene.upload({ name: `${n}.txt`, content: { text: `text ${n}` } }));
    // Until the migration is done, some are still to be mirrored.
    await scene.admin.addFault({ endpoint: 'media', latency: 200 });
    await scene.resync();
    await until('the first to be mirrored', async () => (await mirrored()) > 0);
    await migrate(db, silent, {
      ...migrations,
      '0002_more': {
        async up(tx) {
          await sql`ALTER TABLE assets ADD COLUMN more text NOT NULL DEFAULT 'more'`.execute(tx);
          await sql`ALTER TABLE connections ADD COLUMN more text NOT NULL DEFAULT 'more'`.execute(tx);
          await sql`CREATE INDEX assets_more ON assets (more, id)`.execute(tx);
        },
      },
    });
    expect(await mirrored(), 'mirrored before the migration was done').toBeLessThan(ids.length);
    await scene.admin.clearFaults();
    const later = await scene.upload({ name: 'later.txt', content: { text: 'later' } });
    await scene.resync();
    await scene.mirror.quiet();
    expect(await mirrored()).toBe(ids.length + 1);
    expect((await scene.media(later))?.toString()).toBe('later');
    expect(scene.mirror.lines.filter(({ level }) => level === 'warn' || level === 'error')).toEqual([]);
  } finally {
    await db.destroy();
    await scene.close();
  }
});

let database: Awaited<ReturnType<typeof newDatabase>>;
beforeEach(async () => {
  database = await newDatabase({ empty: true });
});
afterEach(async () => {
  await database.drop();
});

test('a migration lets a transaction go first that holds one table and then needs another', {
  tags: 'slow',
}, async () => {
  const lines: { event: string }[] = [];
  const log = createLog({
    level: 'info',
    pretty: false,
    destination: { write: (line: string) => lines.push(JSON.parse(line)) } as never,
  });
  const db = open(database.url);
  const process = new pg.Client({ connectionString: database.url });
  await process.connect();
  try {
    await migrate(db, silent);
    // After a pause of the machine, the migration may give way later than usual.
    await process.query("SET deadlock_timeout = '1min'");
    await process.query('BEGIN; SELECT * FROM connections FOR SHARE');
    const migration = migrate(db, log, {
      ...migrations,
      // Without locks on both from the start, each would wait for the other.
      '0002_more': {
        async up(tx) {
          await sql`ALTER TABLE assets ADD COLUMN more text`.execute(tx);
          await sql`ALTER TABLE connections ADD COLUMN more text`.execute(tx);
        },
      },
    });
    await until('the migration to hold a lock and wait for another', async () => {
      const { rows } = await process.query('SELECT 1 FROM pg_locks WHERE NOT granted AND relation = $1::regclass', [
        'connections',
      ]);
      return rows.length > 0;
    });
    await process.query('SELECT * FROM assets FOR SHARE');
    await until('the migration to say that it waits', async () => lines.length > 0);
    await process.query('COMMIT');
    await migration;
    await process.query('SELECT assets.more, connections.more FROM assets, connections');
    expect(lines.map(({ event }) => event)).toEqual(['database.migration_waits']);
  } finally {
    await process.end();
    await db.destroy();
  }
});

test('a database of a newer release can be used, unless that release has removed something', async () => {
  const lines: { msg: string; migrations?: string[] }[] = [];
  const destination = { write: (line: string) => lines.push(JSON.parse(line)) } as never;
  const log = createLog({ level: 'info', pretty: false, destination });
  const db = open(database.url);
  const ran: string[] = [];
  const up = (name: string) => ({ up: async () => void ran.push(name) });
  try {
    await migrate(db, log, { ...migrations, '9001_more': up('9001_more') });
    expect([ran, lines]).toEqual([['9001_more'], []]);

    // The previous release still starts, any number of times.
    for (let start = 0; start < 2; start++) {
      const store = await openStore({ url: database.url, log });
      expect(await store.connections.list()).toEqual([]);
      await store.close();
    }
    expect(lines.map(({ msg, migrations }) => ({ msg, migrations }))).toEqual(
      Array(2).fill({
        msg: 'the database schema is newer than this release',
        migrations: ['9001_more'],
      }),
    );
    const { rows } = await sql`SELECT name FROM kysely_migration ORDER BY name`.execute(db);
    expect(rows).toEqual([...Object.keys(migrations), '9001_more'].map((name) => ({ name })));

    await migrate(db, log, { ...migrations, '9001_more': up('9001_more'), '9002_contract_names': up('9002') });
    await expect(openStore({ url: database.url, log })).rejects.toThrow(
      'a newer release has changed the database (9002_contract_names), and this one can no longer use it; start the newer release',
    );
  } finally {
    await db.destroy();
  }
});
