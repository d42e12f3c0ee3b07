// @module-tag slow
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RetryLater, StorageUnavailable } from '../../../src/floor/errors.ts';
import { isTooMany } from '../../../src/floor/held-changes.ts';
import { removeGone, removeLeftovers } from '../../../src/mirror/removal/remove-gone.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { ask } from '../../support/database.ts';
import { richest } from '../../support/mirror.ts';
import { newScene, type Scene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const signal = new AbortController().signal;
const day = 86_400_000;

test.each([
  { count: 10, known: 10, held: false },
  { count: 11, known: 11, held: true },
  { count: 11, known: 55, held: false },
  { count: 11, known: 54, held: true },
  { count: 12, known: 26, held: true },
  { count: 3, known: 9, holdReplaced: { percent: 30, assets: 2 }, held: true },
  { count: 3, known: 10, holdReplaced: { percent: 30, assets: 2 }, held: false },
])(
  'with $count of $known assets to be removed within a day, the company is held: $held',
  ({ held, holdReplaced, ...found }) => {
    expect(isTooMany('removed', found, { ...(holdReplaced && { holdReplaced }) })).toBe(held);
  },
);

describe('GONE_RETENTION', () => {
  let scene: Scene;
  let url: string;
  beforeAll(async () => {
    // Nothing is removed by itself within the test.
    scene = await newScene({ redis: richest().redis, s3: richest().s3, environment: { GONE_RETENTION: '30d' } });
    url = scene.ground.environment.DATABASE_URL!;
  });
  afterAll(() => scene?.close());

  const removals = () => scene.mirror.api('GET', '/removals');
  const connection = () => scene.mirror.api('GET', `/connections/${scene.connectionId}`);
  function pass(storage: Storage = scene.mirror.service.context.storage, leaseMs = 60_000): Promise<number> {
    const { store, log } = scene.mirror.service.context;
    return removeGone({ store, storage, log, leaseMs, signal }, 30 * day);
  }
  /** The storage, with something that happens before each object is removed. */
  function purging(before: (key: string) => Promise<void>): Storage {
    const { storage } = scene.mirror.service.context;
    return {
      ...storage,
      async *purge(at, options) {
        await before(at);
        yield* storage.purge(at, options);
      },
    };
  }
  /** Uploads, mirrors and deletes assets, which are then gone for so many days. */
  async function gone(count: number, days: number, more: object = {}): Promise<string[]> {
    const ids: string[] = [];
    for (let made = 0; made < count; made++) ids.push(await scene.upload({ name: `gone ${made}`, ...more }));
    await scene.resync();
    await scene.mirror.quiet();
    for (const id of ids) await scene.admin.removeAsset(id);
    await scene.resync({ mode: 'full', acceptGone: true }).catch(() => scene.resync());
    for (const id of ids) await scene.mirror.assetIn(id, 'gone');
    const named = ids.map((id) => `'${id}'`).join();
    await ask(url, `UPDATE assets SET gone_at = now() - interval '${days} days' WHERE id IN (${named})`);
    return ids;
  }

  test('assets stay until the retention is over, are listed a week before, and are then removed', {}, async () => {
    const [later] = await gone(1, 20);
    const [soon] = await gone(1, 25);
    const [due] = await gone(1, 31);
    const stays = await scene.upload();
    await scene.resync();
    await scene.mirror.quiet();
    const { nextWeek, goneRetentionSeconds } = await removals();
    expect(goneRetentionSeconds).toBe(30 * 86_400);
    expect(nextWeek).toMatchObject({ assets: 2, bytes: 10, first: [{ id: due, bytes: 5 }, { id: soon }] });
    expect(await pass()).toBe(1);
    expect(await scene.keys(due!)).toEqual([]);
    expect(await scene.mirror.asset(due!)).toBeUndefined();
    for (const id of [later!, soon!, stays]) expect(await scene.keys(id)).toHaveLength(2);
    const events = await scene.mirror.store.events.search({ kind: 'asset.removed', limit: 1 });
    expect(events[0]).toMatchObject({ assetId: due, data: { companyId: 'acme', objects: 2, left: 0 } });
    expect(await pass()).toBe(0);
  });

  test('an asset that is back in the library is mirrored again, also after its removal began', async () => {
    const [id] = await gone(1, 31);
    const { storage } = scene.mirror.service.context;
    // Dies after the first object.
    const dying: Storage = {
      ...storage,
      async *purge(at, options) {
        for await (const purged of storage.purge(at, options)) {
          yield purged;
          throw new Error('killed');
        }
      },
    };
    expect(await pass(dying)).toBe(0);
    expect(await scene.keys(id!)).toHaveLength(1);
    await scene.admin.addAsset({
      id: id!,
      companyId: 'acme',
      name: 'gone 0',
      mimeType: 'application/octet-stream',
      assetType: 'documents',
      uploadDate: Date.UTC(2024, 1, 29),
      content: { text: 'hello' },
    });
    await scene.resync();
    await scene.mirror.assetIn(id!, 'mirrored');
    await scene.mirror.quiet();
    expect(await pass()).toBe(0);
    expect(await scene.keys(id!)).toHaveLength(2);
    expect((await scene.media(id!))?.toString()).toBe('hello');
  });

  test('a hold protects an asset, a project and a connection', async () => {
    const [id] = await gone(1, 31);
    for (const hold of [
      { kind: 'asset', ids: [id] },
      { kind: 'connection', ids: [scene.connectionId] },
    ]) {
      await scene.mirror.api('POST', '/holds', hold);
      expect(await pass()).toBe(0);
      expect(await scene.keys(id!)).toHaveLength(2);
      await scene.mirror.api('POST', '/holds/release', hold);
    }
    expect(await pass()).toBe(1);
  });

  test('if too many assets of a company would be removed, none is until an operator accepts it', {}, async () => {
    const { connectionId } = scene;
    const ids = await gone(12, 31);
    expect(await pass()).toBe(0);
    expect(await pass()).toBe(0);
    const sample = ids.toSorted().slice(0, 10);
    const changes = { kind: 'removed', count: 14, known: 18, sample };
    const events = await scene.mirror.store.events.search({ kind: 'company.held', limit: 10 });
    const ofRemovals = events.filter(({ data }) => data.kind === 'removed');
    expect(ofRemovals).toMatchObject([{ connectionId, data: { companyId: 'acme', companyName: 'Acme', ...changes } }]);
    expect((await removals()).heldCompanies).toMatchObject([{ companyId: 'acme', connectionId, ...changes }]);
    expect(await connection()).toMatchObject({ condition: { code: 'held' }, companies: [{ held: [changes] }] });
    expect(await scene.mirror.store.connections.countHeld()).toEqual({ missing: 0, replaced: 0, removed: 1 });
    for (const id of ids) expect(await scene.keys(id)).toHaveLength(2);

    await scene.resync({ mode: 'full', companyId: 'acme', acceptRemoved: true });
    await until('the company to be no longer held', async () => (await removals()).heldCompanies.length === 0);
    expect(await pass()).toBe(12);
    for (const id of ids) expect(await scene.keys(id)).toEqual([]);
  });

  test('the limit of the connection applies to removals, and a company is not held if none is due', async () => {
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { holdReplaced: '0%,0' });
    await ask(url, 'UPDATE companies SET removal_accepted_before = NULL');
    const [id] = await gone(1, 31);
    expect(await pass()).toBe(0);
    expect(await connection()).toMatchObject({ companies: [{ held: [{ kind: 'removed', sample: [id] }] }] });
    await scene.mirror.api('POST', '/holds', { kind: 'asset', ids: [id] });
    expect(await pass()).toBe(0);
    expect((await removals()).heldCompanies).toEqual([]);
    await scene.mirror.api('POST', '/holds/release', { kind: 'asset', ids: [id] });
    expect(await pass()).toBe(0);
    expect((await removals()).heldCompanies).toHaveLength(1);
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { holdReplaced: null });
    expect(await pass()).toBe(1);
    expect((await removals()).heldCompanies).toEqual([]);
  });

  test.each([
    { what: 'with an error', error: new Error('this may not be removed') },
    { what: 'as if the whole bucket were closed', error: new StorageUnavailable('this may not be removed') },
    { what: 'for now', error: new RetryLater({ code: 'error', text: 'this may not be removed' }, 60_000) },
  ])('an asset that is refused $what delays no other, and is removed in the next pass', async ({ error }) => {
    // More are removed within the day than the limit, above which a company is held.
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { holdReplaced: '100%,0' });
    const [refused, ...others] = await gone(3, 31);
    const refusing = purging(async (at) => {
      if (at.includes(refused!)) throw error;
    });
    expect(await pass(refusing)).toBe(2);
    for (const id of others) expect(await scene.keys(id)).toEqual([]);
    expect(await scene.keys(refused!)).toHaveLength(2);
    const failures = scene.mirror.lines.filter(
      ({ event, assetId }) => event === 'removal.failed' && assetId === refused,
    );
    expect(failures).toMatchObject([{ err: { message: 'this may not be removed' } }]);
    expect(await pass()).toBe(1);
    expect(await scene.keys(refused!)).toEqual([]);
  });

  test('what becomes due during a pass is not removed by it, because it was not counted', async () => {
    const { removals } = scene.mirror.store;
    const [due, later] = await gone(2, 31);
    const { companyId, before } = (await removals.companiesDue(30 * day))[0]!;
    await ask(url, `UPDATE assets SET gone_at = '${before.toISOString()}'::timestamptz WHERE id = '${later}'`);
    const at = { companyId, onlyAccepted: false, after: '', limit: 10 };
    expect(await removals.removable({ ...at, before })).toEqual([{ id: due, accepted: false }]);
    expect(await pass()).toBe(2);
  });

  test('assets whose hold is released during a pass are removed by the next one, within the limit', async () => {
    const { store, storage, log } = scene.mirror.service.context;
    const ids = await gone(3, 31);
    await scene.mirror.api('POST', '/holds', { kind: 'asset', ids: ids.slice(1) });
    const release = async (...found: Parameters<typeof store.removals.setHeldRemovals>) => {
      await scene.mirror.api('POST', '/holds/release', { kind: 'asset', ids: ids.slice(1) });
      return store.removals.setHeldRemovals(...found);
    };
    const released = { ...store, removals: { ...store.removals, setHeldRemovals: release } };
    expect(await removeGone({ store: released, storage, log, leaseMs: 60_000, signal }, 30 * day)).toBe(1);
    expect(await pass()).toBe(2);
  });

  test('an acceptance covers what was due when it was requested, also with a shorter retention later', async () => {
    const { removals } = scene.mirror.store;
    const [old, recent] = await gone(2, 31);
    await ask(url, `UPDATE assets SET gone_at = now() - interval '10 days' WHERE id = '${recent}'`);
    await removals.accept({ companyId: 'acme', at: new Date(), retentionMs: 30 * day });
    const { before } = (await removals.companiesDue(7 * day))[0]!;
    const at = { companyId: 'acme', before, onlyAccepted: true, after: '', limit: 10 };
    expect(await removals.removable(at)).toEqual([{ id: old, accepted: true }]);
    await ask(url, `UPDATE assets SET gone_at = now() - interval '31 days' WHERE id = '${recent}'`);
    expect(await pass()).toBe(2);
  });

  test('a removal that takes longer than its lease keeps it', async () => {
    const [id] = await gone(1, 31);
    // Long enough for a busy machine to renew it in time.
    const leaseMs = 4000;
    let first: number | undefined;
    const slow = purging(async () => {
      if (first !== undefined) return;
      first = await leasedUntil(id!);
      const end = first + leaseMs;
      await until('the lease to be renewed', async () => (await leasedUntil(id!)) > end);
    });
    expect(await pass(slow, leaseMs)).toBe(1);
    expect(await scene.mirror.asset(id!)).toBeUndefined();
  });
  const leasedUntil = async (id: string) =>
    ((await ask(url, `SELECT lease_until FROM assets WHERE id = '${id}'`))[0]!.lease_until as Date).getTime();

  test('what a lock had kept, and somebody else has removed, is not tried for ever', async () => {
    const { store, storage, log } = scene.mirror.service.context;
    await ask(url, `INSERT INTO tombstones (hash, erased_at, erased_by, reason) VALUES ('h', now(), 'ada', 'x')`);
    await ask(
      url,
      `INSERT INTO leftovers (hash, key, version_id, bytes, retry_at) VALUES ('h', 'no/such/object', 'v1', 5, now())`,
    );
    await removeLeftovers({ store, storage, log, leaseMs: 60_000, signal });
    expect(await ask(url, 'SELECT FROM leftovers')).toEqual([]);
  });
});

describe('a mirror with a short GONE_RETENTION', () => {
  test('a mirror with a short GONE_RETENTION removes by itself what is gone', async () => {
    const scene = await newScene({ environment: { GONE_RETENTION: '1s' } });
    const id = await scene.film();
    const stays = await scene.upload();
    await scene.resync();
    await scene.mirror.quiet();
    await scene.admin.removeAsset(id);
    await scene.resync();
    await until('its objects to be removed', async () => (await scene.keys(id)).length === 0);
    expect(await scene.keys(stays)).toHaveLength(2);
    await scene.close();
  });
});
