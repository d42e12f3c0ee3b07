import { afterAll, expect, test } from 'vitest';
import { openStore } from '../../../src/store/store.ts';
import { ask } from '../../support/database.ts';
import { newStore, silent } from '../records.ts';

const opened = await newStore();
afterAll(() => opened.close());

test('the days of the audit log are those of UTC, whatever the time zone of the database', async () => {
  await ask(
    opened.url,
    `INSERT INTO events (kind, at, data) VALUES ('operator.pauseConnection', '2026-10-31T23:30:00Z', '{}')`,
  );
  await ask(
    opened.url,
    `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Tokyo''', current_database()); END $$`,
  );
  const store = await openStore({ url: opened.url, log: silent });
  try {
    const found = (since: string, until: string) => store.audit.search({ since, until, before: undefined, limit: 10 });
    expect(await found('2026-10-31', '2026-11-01')).toHaveLength(1);
    expect(await found('2026-11-01', '2026-11-02')).toEqual([]);
  } finally {
    await store.close();
  }
});

test('a day has 24 hours, also when summer time begins or ends in the time zone of the database', async () => {
  const { store, url, close } = await newStore();
  try {
    await ask(
      url,
      `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Europe/Berlin''', current_database()); END $$`,
    );
    const inBerlin = await openStore({ url, log: silent });
    for (const at of ['2026-03-28T23:30:00Z', '2026-03-29T23:30:00Z', '2026-10-25T00:30:00Z', '2026-10-26T00:30:00Z'])
      await ask(url, `INSERT INTO events (kind, at, data) VALUES ('operator.pauseConnection', '${at}', '{}')`);
    for (const day of ['2026-03-28', '2026-03-29', '2026-10-25', '2026-10-26'])
      expect((await inBerlin.audit.ofDay(day, 0, 10)).map(({ at }) => at.toISOString().slice(0, 10))).toEqual([day]);
    await inBerlin.close();
    expect(await store.audit.ofDay('2026-10-24', 0, 10)).toEqual([]);
  } finally {
    await close();
  }
});
