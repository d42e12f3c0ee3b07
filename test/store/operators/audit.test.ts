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
