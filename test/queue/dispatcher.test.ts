import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Reason } from '../../src/floor/reason-codes.ts';
import { leaseOf } from '../../src/store/assets/leases.ts';
import { mirroredAlone as found } from '../support/mirrored.ts';
import { byOperator } from '../support/reasons.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';
import { age } from './age.ts';

describe('the dispatcher', () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await newStage();
  });
  afterAll(async () => {
    await stage?.close();
  });

  /** Connections with these numbers of pending assets, by connection newest first. */
  async function pending(...counts: number[]): Promise<string[][]> {
    const all: string[][] = [];
    for (const count of counts) {
      const { companyId, connectionId } = await stage.company();
      const ids = await stage.upload(companyId, count);
      await stage.sync(connectionId);
      all.push(ids.reverse());
    }
    return all;
  }
  const dispatch = async () => (await stage.store.assets.dispatch({ perConnection: 4 }))?.map(({ id }) => id) ?? [];
  /** A worker's whole lease. */
  async function finish(id: string): Promise<void> {
    const asset = (await stage.store.assets.take(id, 60_000))!;
    expect(await stage.store.assets.unavailable(leaseOf(asset), { code: 'no_file', status: null })).toBe(true);
  }

  test('the dispatcher gives slots to the newest assets first, in turn per connection and up to its limit', {
    tags: 'slow',
  }, async () => {
    const [a, b, c] = (await pending(300, 120, 2)) as [string[], string[], string[]];
    const first = await dispatch();
    expect(first).toHaveLength(10);
    const turns = [first.slice(0, 3), first.slice(3, 6), first.slice(6, 8), first.slice(8, 10)];
    for (const [turn, ids] of turns.entries()) {
      expect(ids.sort()).toEqual([a[turn], b[turn], c[turn]].filter((id) => id !== undefined).sort());
    }
    expect(await dispatch()).toEqual([]);

    await finish(a[1]!);
    await finish(a[3]!);
    await finish(b[0]!);
    expect((await dispatch()).sort()).toEqual([a[4], a[5], b[4]].sort());
    expect(await dispatch()).toEqual([]);

    // If the connection of the free slot is known, the others are not checked.
    await finish(a[2]!);
    await finish(b[1]!);
    const { connectionId } = (await stage.store.assets.get(b[1]!))!;
    const only = (await stage.store.assets.dispatch({ perConnection: 4, only: [connectionId!] }))!;
    expect(only.map(({ id }) => id)).toEqual([b[5]]);
    expect(await dispatch()).toEqual([a[6]]);

    // A new asset comes before older ones, as soon as a slot is free.
    const [owner] = [(await stage.store.assets.get(a[0]!))!];
    const [newest] = await stage.upload(owner.companyId, 1, { uploadDate: Date.now() });
    await stage.sync(owner.connectionId!);
    expect(await dispatch()).toEqual([]);
    await finish(a[0]!);
    expect(await dispatch()).toEqual([newest]);
  });

  test('the dispatcher gives a quarter of the slots, and all free ones, to follow-up checks, longest due first', async () => {
    const [ids] = (await pending(16)) as [string[]];
    const [media, looks] = [ids.slice(0, 6), ids.slice(6)];
    // Eight are due, each an hour longer than the next. Two are not due before the other tests have ended.
    await stage.query(
      `UPDATE assets SET state = 'mirrored', mirrored_at = now(),
         next_at = now() + (array_position($1::text[], id) - 8.5) * interval '1 hour' WHERE id = ANY($1)`,
      [looks],
    );
    expect((await dispatch()).sort()).toEqual([looks[0], ...media.slice(0, 3)].sort());
    await finish(media[0]!);
    expect(await dispatch()).toEqual([media[3]]);
    await finish(looks[0]!);
    expect(await dispatch()).toEqual([looks[1]]);
    for (const id of media.slice(1, 4)) await finish(id);
    const { connectionId } = (await stage.store.assets.get(ids[0]!))!;
    const only = (await stage.store.assets.dispatch({ perConnection: 4, only: [connectionId!] }))!;
    expect(only.map(({ id }) => id)).toEqual([media[4], media[5], looks[2]]);
    for (const id of media.slice(4)) await finish(id);
    expect(await dispatch()).toEqual([looks[3], looks[4]]);
    for (const id of looks.slice(1, 5)) await finish(id);
    expect(await dispatch()).toEqual(looks.slice(5, 8));
    for (const id of looks.slice(5, 8)) await finish(id);
    expect(await dispatch()).toEqual([]);
  });

  test('the dispatcher gives a single slot to a follow-up check one time in four, at random', {
    tags: 'slow',
  }, async () => {
    // In however many companies.
    const companies = [];
    for (let i = 0; i < 8; i++) companies.push(await stage.company());
    const { connectionId } = await stage.person(...companies.map(({ companyId }) => companyId));
    const ids: string[] = [];
    const looks: string[] = [];
    for (const { companyId, connectionId } of companies) {
      await stage.store.connections.end(connectionId, byOperator);
      const uploaded = await stage.upload(companyId, 20);
      looks.push(...uploaded.splice(0, 10));
      ids.push(...uploaded);
    }
    await stage.sync(connectionId);
    await stage.query(
      `UPDATE assets SET state = 'mirrored', mirrored_at = now(), next_at = now() - interval '1 minute' WHERE id = ANY($1)`,
      [looks],
    );
    const given: string[] = [];
    for (let lease = 0; lease < 80; lease++) {
      const due = (await stage.store.assets.dispatch({ perConnection: 1 }))!;
      expect(due).toHaveLength(1);
      await finish(due[0]!.id);
      given.push(due[0]!.id);
    }
    // The chance of none, or of more than 60 of 80, is less than 1e-9.
    const media = given.filter((id) => ids.includes(id));
    expect(media.length).toBeGreaterThanOrEqual(20);
    expect(media.length).toBeLessThan(80);
    await stage.store.connections.end(connectionId, byOperator);
  });

  test('the dispatcher gives each slot once, in any number of processes', async () => {
    const [ids] = await pending(50);
    const given = (await Promise.all(Array.from({ length: 8 }, dispatch))).flat();
    expect(given).toEqual(ids!.slice(0, 4));
  });

  test('the dispatcher counts the slots of a connection over all its companies', async () => {
    const [a, b] = [await stage.company(), await stage.company()];
    const { connectionId } = await stage.person(a.companyId, b.companyId);
    const old = await stage.upload(a.companyId, 10);
    const [newest] = await stage.upload(b.companyId, 1, { uploadDate: Date.now() });
    await stage.store.connections.end(a.connectionId, byOperator);
    await stage.store.connections.end(b.connectionId, byOperator);
    await stage.sync(connectionId);
    expect(await dispatch()).toEqual([newest, ...old.slice(7).reverse()]);
  });

  test('the dispatcher frees the slots of an ended connection when its jobs leave the queue', async () => {
    const [ids] = await pending(6);
    const [first] = await dispatch();
    const { connectionId } = (await stage.store.assets.get(first!))!;
    await stage.store.connections.delay(connectionId!, 60_000, { code: 'error', text: 'asked to wait' });
    expect(await stage.store.assets.take(first!, 60_000)).toBeUndefined();
    expect(await stage.store.assets.get(first!)).toMatchObject({ queuedAt: null, state: 'pending' });
    expect(await stage.store.assets.take(ids![5]!, 60_000)).toBeUndefined();
  });

  test('the dispatcher enqueues an asset again only when its job counts as lost', async () => {
    await pending(6);
    const given = await dispatch();
    const held = (await stage.store.assets.take(given[0]!, 60_000))!;
    const lost = async () => (await stage.store.assets.overdue(60_000)).map((asset) => asset.id);
    expect((await lost()).filter((id) => given.includes(id))).toEqual([]);
    await age(stage);
    expect((await lost()).filter((id) => given.includes(id)).sort()).toEqual(given.slice(1).sort());
    expect((await lost()).filter((id) => given.includes(id))).toEqual([]);
    expect(held.id).toBe(given[0]);
  });

  test('the dispatcher enqueues the asset of a killed worker again, once, after its lease', async () => {
    const [ids] = await pending(1);
    const [id] = await dispatch();
    expect([id]).toEqual(ids);
    const dead = (await stage.store.assets.take(id!, 1))!;
    const lost = async () => (await stage.store.assets.overdue(60_000)).filter((asset) => asset.id === id);
    const again = await until('its lease to be over', async () => (await lost())[0]);
    // Another job than the one that the dead worker still has.
    expect(again.lease).toBe(dead.lease);
    expect(dead.lease).toBeGreaterThan(0);
    expect(await lost()).toEqual([]);
    expect(await stage.store.assets.startTransfer(leaseOf(dead))).toBe(true);
    const next = (await stage.store.assets.take(id!, 60_000))!;
    expect(await stage.store.assets.startTransfer(leaseOf(dead))).toBe(false);
    expect(await lost()).toEqual([]);
    expect(next.lease).toBe(dead.lease + 1);
  });

  test('two workers never lease the same asset, and a worker whose lease is over writes nothing', async () => {
    await pending(1);
    const [id] = await dispatch();
    const taken = await Promise.all(Array.from({ length: 10 }, () => stage.store.assets.take(id!, 0)));
    const first = taken.find((asset) => asset !== undefined)!;
    const second = await until('the lease to run out', () => stage.store.assets.take(id!, 60_000));
    expect(second.lease).toBeGreaterThan(first.lease);
    expect(await stage.store.assets.take(id!, 60_000)).toBeUndefined();

    const [late, own] = [first, second].map(leaseOf);
    const { assets } = stage.store;
    const media = { key: 'k', bytes: 1, variant: 'original', checksums: {}, etag: null, version: 'v' } as const;
    expect(await assets.startTransfer(late!)).toBe(false);
    expect(await assets.saveMedia(late!, media, { isVerified: true })).toBe(false);
    const reason: Reason = { code: 'error', text: 'late' };
    expect(await assets.failed(late!, reason)).toBe(false);
    expect(await assets.retryLater(late!, 0, { spent: true, reason })).toBe(false);
    expect(await assets.processing(late!, 0)).toBe(false);
    expect(await assets.giveUpSidecars(late!, reason)).toBe(false);
    expect(await assets.renew(late!, 60_000)).toBe(false);
    expect(await assets.renew(own!, 60_000)).toBe(true);
    expect(await assets.get(id!)).toMatchObject({ state: 'transferring', attempts: 0, reason: null, media: null });
    expect(await assets.startTransfer(own!)).toBe(true);
  });
});

test('a lease that ends frees one slot, for the newest due asset', { tags: 'slow' }, async () => {
  const stage = await newStage();
  try {
    const { companyId, connectionId } = await stage.company();
    const ids = (await stage.upload(companyId, 8)).reverse();
    await stage.sync(connectionId);
    const dispatch = async () =>
      (await stage.store.assets.dispatch({ perConnection: 4, only: [connectionId] }))!.map(({ id }) => id);
    expect(await dispatch()).toEqual(ids.slice(0, 4));
    const held = await Promise.all(ids.slice(0, 4).map((id) => stage.store.assets.take(id, 60_000)));
    const [first, second] = held.map((asset) => leaseOf(asset!));
    expect(await dispatch()).toEqual([]);
    expect(await stage.store.assets.mirrored(first!, found)).toBe(true);
    expect(await dispatch()).toEqual([ids[4]]);
    // A second write of a lease is refused, and so is one of a connection that has ended.
    expect(await stage.store.assets.mirrored(first!, found)).toBe(false);
    await stage.store.connections.end(connectionId, byOperator);
    expect(await stage.store.assets.mirrored(second!, found)).toBe(false);
    expect(await dispatch()).toEqual([]);
  } finally {
    await stage.close();
  }
});
