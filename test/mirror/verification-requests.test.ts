import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { newStage, type Stage } from '../support/stage.ts';

const day = 24 * 3_600_000;

describe('requests of scheduled verifications', () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await newStage();
  });
  afterEach(async () => {
    await stage.query('DELETE FROM verifications');
    await stage.query('DELETE FROM chores');
    await stage.admin.clearFaults();
  });
  afterAll(async () => {
    await stage?.close();
  });
  const asked = async () =>
    stage.query<{ connection_id: string | null; status: string; options: unknown }>(
      'SELECT connection_id, status, options FROM verifications ORDER BY requested_at',
    );
  const resync = (connectionId: string, request: object) =>
    stage.mirror.api('POST', `/connections/${connectionId}/resync`, request);
  const scheduled = { status: 'waiting', options: { scheduled: true, repair: true } };

  test('a scheduled verification is requested once per interval, first one interval after the first connect', async () => {
    const { requestScheduledIfDue: ask } = stage.store.verifications;
    expect(await ask(day)).toBe(false);
    expect(await stage.query('SELECT FROM chores')).toHaveLength(0);
    await stage.company();
    expect(await ask(day)).toBe(false);
    expect(await asked()).toEqual([]);
    await stage.query(`UPDATE chores SET due_at = due_at - interval '23 hours 50 minutes'`);
    expect(await ask(day)).toBe(false);
    await stage.query(`UPDATE chores SET due_at = due_at - interval '10 minutes'`);
    const all = await Promise.all(Array.from({ length: 8 }, () => ask(day)));
    expect(all.filter(Boolean)).toHaveLength(1);
    expect(await ask(day)).toBe(false);
    expect(await asked()).toEqual([{ connection_id: null, ...scheduled }]);
    // A waiting verification is also the next one.
    await stage.query('UPDATE chores SET due_at = now()');
    expect(await ask(day)).toBe(true);
    expect(await asked()).toHaveLength(1);
    // A shorter interval applies at once.
    expect(await ask(day / 24)).toBe(false);
    const [due] = await stage.query<{ soon: boolean }>(
      `SELECT due_at <= now() + interval '1 hour' AS soon FROM chores WHERE name = 'bucket'`,
    );
    expect(due).toEqual({ soon: true });
  });

  test('a mirror that has been connected for longer than the interval gets a scheduled verification at once', async () => {
    await stage.company();
    await stage.query(`UPDATE connections SET connected_at = connected_at - interval '2 days'`);
    expect(await stage.store.verifications.requestScheduledIfDue(day)).toBe(true);
    expect(await stage.store.verifications.requestScheduledIfDue(day)).toBe(false);
  });

  test('only a full sync of everything that an operator requested is followed by a verification', async () => {
    const { companyId, connectionId } = await stage.company();
    await stage.run(connectionId);
    for (const request of [
      { mode: 'incremental' },
      { mode: 'full', companyId },
      { mode: 'full', assetType: 'videos' },
      { mode: 'full', since: 5 },
      { mode: 'full', companyId, acceptGone: true },
    ]) {
      await resync(connectionId, request);
      await stage.run(connectionId);
    }
    // As the schedule does, and a verification.
    await stage.sync(connectionId, 'full');
    expect(await asked()).toEqual([]);
    for (const request of [{ mode: 'full' }, { mode: 'full', acceptGone: true }]) {
      await resync(connectionId, request);
      expect(await asked()).toEqual([]);
      await stage.run(connectionId);
      expect(await asked()).toEqual([{ connection_id: connectionId, ...scheduled }]);
      await stage.query('DELETE FROM verifications');
    }
  });

  test('a resync is followed by a verification even if it joins a waiting sync, is requested twice, or fails', {
    tags: 'slow',
  }, async () => {
    const [one, two] = [await stage.company(), await stage.company()];
    for (const { connectionId } of [one, two]) await stage.run(connectionId);
    await stage.store.syncs.request(one.connectionId, 'full');
    await resync(one.connectionId, { mode: 'full' });
    await stage.store.syncs.request(one.connectionId, 'incremental');
    expect(await stage.run(one.connectionId)).toEqual({ outcome: 'done', done: 1 });
    await resync(one.connectionId, { mode: 'full' });
    await stage.admin.addFault({ endpoint: 'me', status: 500 });
    await stage.run(one.connectionId);
    expect(await asked()).toMatchObject([{ connection_id: one.connectionId }]);
    await resync(two.connectionId, { mode: 'full' });
    await stage.run(two.connectionId);
    expect((await asked()).map((it) => it.connection_id)).toEqual([one.connectionId, two.connectionId]);
  });

  test('the last requested and deep verifications are kept, however many others follow', async () => {
    const { store } = stage;
    const id = await store.verifications.request({});
    await stage.query(`UPDATE verifications SET status = 'done', finished_at = now() - interval '9 days'`);
    for (let n = 0; n < 55; n++) {
      await stage.query('UPDATE chores SET due_at = now()');
      await stage.query(`INSERT INTO chores VALUES ('bucket', now()) ON CONFLICT DO NOTHING`);
      await store.verifications.requestScheduledIfDue(day);
      await stage.query(`UPDATE verifications SET status = 'done', finished_at = now() WHERE status = 'waiting'`);
    }
    expect(await store.verifications.get(id)).toBeDefined();
    expect((await asked()).length).toBeLessThanOrEqual(52);
    const deep = await store.verifications.request({ deep: true });
    await stage.query(
      `UPDATE verifications SET status = 'done', finished_at = now() - interval '9 days' WHERE id = '${deep}'`,
    );
    await stage.query(
      `INSERT INTO verifications (id, status, finished_at) SELECT n, 'done', now() FROM generate_series(1, 55) n`,
    );
    await store.verifications.request({});
    expect(await store.verifications.get(deep)).toBeDefined();
    expect(await store.verifications.get(id)).toBeUndefined();
  });
});
