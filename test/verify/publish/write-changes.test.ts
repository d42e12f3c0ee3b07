import { gunzipSync } from 'node:zlib';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Change } from '../../../src/store/changes/changes.ts';
import { writeChanges } from '../../../src/verify/publish/write-changes.ts';
import { newStore, silent } from '../../store/records.ts';
import { contentOf, type Ground, grounds, newGround } from '../../support/mirror.ts';
import { died, mortal } from '../../support/mortal.ts';
import { freePort } from '../../support/ports.ts';
import { until } from '../../support/until.ts';

const { signal } = new AbortController();

describe.each(grounds())('the files of changes ($name)', (kind) => {
  let ground: Ground;
  let opened: Awaited<ReturnType<typeof newStore>>;
  let pool: pg.Pool;
  beforeEach(async () => {
    ground = await newGround({ port: await freePort(), ...kind });
    opened = await newStore();
    pool = new pg.Pool({ connectionString: opened.url, max: 2 });
    await pool.query(`INSERT INTO companies VALUES ('acme', 'Acme')`);
  });
  afterEach(async () => {
    await pool.end();
    await opened.close();
    await ground.clear();
  });
  const deps = () => ({ store: opened.store, storage: ground.storage, log: silent });

  /** Writes changes that happened at this time. */
  async function change(at: string, ...ids: string[]): Promise<void> {
    await pool.query(
      `INSERT INTO assets (id, company_id, state, media, record_key, mirrored_at, listed)
       SELECT id, 'acme', 'mirrored', jsonb_build_object('key', id), id || '.asset.json', now(), '{}' FROM unnest($1::text[]) AS id`,
      [ids],
    );
    await pool.query('UPDATE asset_changes SET at = $1 WHERE asset_id = ANY($2)', [at, ids]);
  }

  async function files(): Promise<Record<string, Change[]>> {
    const found: Record<string, Change[]> = {};
    for await (const { key } of ground.storage.list('_mirror/changes/')) {
      const text = gunzipSync((await contentOf(ground.storage, key))!).toString();
      found[key.slice('_mirror/changes/'.length)] = text
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line));
    }
    return found;
  }
  const idsOf = (found: Record<string, Change[]>) =>
    Object.fromEntries(Object.entries(found).map(([key, changes]) => [key, changes.map(({ assetId }) => assetId)]));

  /** The feed, once no other transaction of the server is open. */
  async function feed(): Promise<unknown[]> {
    const all = Number((await pool.query('SELECT count(*) FROM asset_changes')).rows[0].count);
    return until('the whole feed', async () => {
      const page = await opened.store.changes.page(undefined, 1000);
      return typeof page === 'object' && page.changes.length === all && JSON.parse(JSON.stringify(page.changes));
    });
  }

  test('each hour that is over has one file, all files together are the feed, and empty hours have none', {
    tags: 'slow',
  }, async () => {
    await change('2026-01-31T12:00:00Z', 'a', 'b');
    await change('2026-01-31T12:59:59.999Z', 'c');
    await change('2026-01-31T15:30:00Z', 'd');
    await change('2026-02-01T00:00:00Z', 'e');
    const before = await feed();
    expect(await writeChanges(deps(), signal)).toBe(3);
    expect(idsOf(await files())).toEqual({
      '2026-01-31/12.jsonl.gz': ['a', 'b', 'c'],
      '2026-01-31/15.jsonl.gz': ['d'],
      '2026-02-01/00.jsonl.gz': ['e'],
    });
    expect(Object.values(await files()).flat()).toEqual(before);
    expect(await writeChanges(deps(), signal)).toBe(0);

    // A change of a transaction that ended late is in the next hour, and the present hour waits.
    await change('2026-01-31T23:59:00Z', 'late');
    await change(new Date().toISOString(), 'now');
    await feed();
    expect(await writeChanges(deps(), signal)).toBe(1);
    expect(idsOf(await files())).toMatchObject({ '2026-02-01/01.jsonl.gz': ['late'] });
    expect(Object.keys(await files())).toHaveLength(4);
  });

  test('a change that a wrong clock has dated into the future does not stop the files', async () => {
    await change('2126-01-31T12:00:00Z', 'future');
    await feed();
    expect(await writeChanges(deps(), signal)).toBe(1);
    const [key] = Object.keys(await files());
    const hour = Date.parse(key!.replace('/', 'T').replace('.jsonl.gz', ':00:00Z'));
    expect(Date.now() - hour).toBeGreaterThan(3_600_000 - 1000);
    expect(Date.now() - hour).toBeLessThan(3 * 3_600_000);
  });

  test('a process that is killed at any step leaves a file that the next one completes with the same lines', {
    tags: 'slow',
  }, async () => {
    for (let hour = 0; hour < 6; hour++)
      await change(`2026-01-31T${String(hour).padStart(2, '0')}:10:00Z`, `a${hour}`, `b${hour}`);
    const before = await feed();
    for (let [step, isDead] = [1, true]; isDead; step++) {
      const life = new AbortController();
      const process = mortal(step, life);
      const mine = { ...deps(), store: process(opened.store), storage: process(ground.storage) };
      isDead = await died(writeChanges(mine, life.signal));
      // What is committed meanwhile does not change a file that was begun.
      await change(`2026-01-31T00:20:00Z`, `late ${step}`);
      expect(step).toBeLessThan(60);
    }
    await feed();
    await writeChanges(deps(), signal);
    const found = Object.values(await files()).flat();
    expect(found).toEqual(await feed());
    expect(found.slice(0, 2)).toEqual(before.slice(0, 2));
  });

  test('of several processes that write changes at once, none replaces or loses anything', {
    tags: 'slow',
  }, async () => {
    for (let hour = 0; hour < 4; hour++) await change(`2026-01-31T0${hour}:10:00Z`, `a${hour}`);
    await feed();
    const results = await Promise.allSettled(Array.from({ length: 4 }, () => writeChanges(deps(), signal)));
    for (const result of results) {
      if (result.status === 'rejected') expect(String(result.reason)).toMatch('has lost the lease');
    }
    await writeChanges(deps(), signal);
    expect(Object.values(await files()).flat()).toEqual(await feed());
  });
});
