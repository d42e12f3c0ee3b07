// @module-tag slow
import { expect, test } from 'vitest';
import { ask } from '../../support/database.ts';
import { until } from '../../support/until.ts';
import { newStore } from '../records.ts';

test('a process that listens again after a lost connection looks for changes and events that it may have missed', async () => {
  const { store, url, close } = await newStore();
  const received = { settings: 0, events: 0 };
  try {
    store.onNotice((notice) => notice.settings && received.settings++);
    store.onEvents(() => received.events++);
    await until('it to listen', () => received.settings === 1 && received.events === 1);
    const ended = await ask(
      url,
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND application_name = 'asset-mirror listen'`,
    );
    expect(ended).toHaveLength(1);
    await until('it to listen again', () => received.settings === 2 && received.events === 2);
  } finally {
    await close();
  }
});
