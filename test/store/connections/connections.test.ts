import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, test } from 'vitest';
import { Superseded } from '../../../src/floor/errors.ts';
import type { Consent } from '../../../src/store/database/schema.ts';
import { openStore } from '../../../src/store/store.ts';
import { ask } from '../../support/database.ts';
import { byOperator } from '../../support/reasons.ts';
import { until } from '../../support/until.ts';
import { consented, listed, newStore, running, silent } from '../records.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());

describe('a grant', () => {
  test('the grant of a new user makes a connection; that of a known user keeps the connection', async () => {
    const userId = randomUUID();
    const first = await store.connections.connect(consented(userId, 'first'));
    expect(first).toMatchObject({ created: true, recovered: false });
    await store.connections.setCompanies(first.id, [{ id: 'kept', name: 'Kept' }], { complete: true });

    const again = await store.connections.connect({
      ...consented(userId, 'second'),
      user: { id: userId, name: 'New', email: '' },
    });
    expect(again).toEqual({ id: first.id, created: false, recovered: false });
    expect(await store.connections.get(first.id)).toMatchObject({
      status: 'active',
      userName: 'New',
      tokens: 'second',
      tokenVersion: 2,
    });
    expect(await store.connections.companies([first.id])).toMatchObject([{ id: 'kept' }]);
  });

  test('a grant after a disconnect makes the connection active again and clears its error', async () => {
    const userId = randomUUID();
    const { id } = await store.connections.connect(consented(userId));
    await store.connections.delay(id, 60_000, { code: 'error', text: 'asked to wait' });
    await store.connections.end(id, byOperator);
    expect(await store.connections.get(id)).toMatchObject({
      status: 'disconnected',
      tokens: null,
      lastError: byOperator,
    });
    expect(await store.connections.connect(consented(userId))).toEqual({ id, created: false, recovered: true });
    expect(await store.connections.get(id)).toMatchObject({
      status: 'active',
      tokens: 'sealed',
      lastError: null,
      delayedUntil: null,
    });
  });

  test('a grant that is saved twice at the same moment makes one connection', async () => {
    const userId = randomUUID();
    const saved = await Promise.all(Array.from({ length: 10 }, () => store.connections.connect(consented(userId))));
    expect(new Set(saved.map(({ id }) => id)).size).toBe(1);
  });

  test('of two consents of a new user that are saved at the same moment, the newer one stays', async () => {
    const save = (tokens: string) =>
      store.consents.save(
        { id: randomUUID(), tokens, connectionId: null, tags: null, linkMadeAt: new Date() },
        { accessMs: 60_000, leaseMs: 60_000 },
      );
    for (let n = 0; n < 20; n++) {
      const userId = randomUUID();
      const before = await save('older');
      const consents = [await save('newer'), { ...before, createdAt: new Date(before.createdAt.getTime() - 1000) }];
      const connect = (consent: Consent) =>
        store.connections.connect({ ...consented(userId, consent.tokens), consent });
      const [newer, older] = await Promise.allSettled(consents.map(connect));
      expect(newer).toMatchObject({ status: 'fulfilled' });
      expect(older!.status === 'fulfilled' || older!.reason instanceof Superseded).toBe(true);
      expect(await store.connections.ofUser(userId)).toMatchObject({ tokens: 'newer' });
    }
  });

  test('tokens of a consent that another process has refreshed meanwhile are not saved', async () => {
    const user = consented(undefined, 'refreshed before');
    const { id } = await store.consents.save(
      { id: randomUUID(), tokens: 'first', connectionId: null, tags: null, linkMadeAt: new Date() },
      { accessMs: 60_000, leaseMs: 60_000 },
    );
    const first = (await store.consents.get(id))!;
    const renewed = await store.consents.renew(id, 'second', { accessMs: 60_000, leaseMs: 60_000 });
    await store.consents.expire(first);
    expect(await store.consents.get(id)).toEqual(renewed);
    await expect(store.connections.connect({ ...user, consent: first })).rejects.toThrow(/another process/);
    expect(await store.connections.ofUser(user.user.id)).toBeUndefined();
    await store.connections.connect({ ...user, tokens: 'second', consent: renewed! });
    expect(await store.consents.get(id)).toBeUndefined();
  });

  test('a grant keeps every character that PostgreSQL can store', async () => {
    const name = `Zoë "O'Neil" \\ %_; DROP TABLE assets; -- 東京 🎬 \u202e`;
    const userId = `${randomUUID()} ${name}`;
    const { id } = await store.connections.connect({ ...consented(userId), user: { id: userId, name, email: name } });
    await store.connections.setCompanies(id, [{ id: name, name }], { complete: true });
    expect(await store.connections.ofUser(userId)).toMatchObject({ id, userName: name, userEmail: name });
    expect(await store.connections.companies([id])).toMatchObject([{ id: name, name }]);
  });
});

describe('the end of a connection', () => {
  test('the end of a connection is reported to exactly one of many callers', async () => {
    const { connectionId } = await running(store, 'acme');
    const ended = await Promise.all(Array.from({ length: 20 }, () => store.connections.end(connectionId, byOperator)));
    expect(ended.filter(Boolean)).toHaveLength(1);
    expect(await store.syncs.countOpen()).toEqual({ waiting: 0, running: 0 });
  });

  test('the refusal of an earlier token never ends a connection', async () => {
    const userId = randomUUID();
    const { id } = await store.connections.connect(consented(userId));
    await store.connections.connect(consented(userId, 'newer'));
    await store.connections.leaseRefresh(id, 2, 'owner', 60_000);
    const owner = 'owner';
    expect(await store.connections.end(id, byOperator, { tokenVersion: 1, owner })).toBeUndefined();
    expect(await store.connections.end(id, byOperator, { tokenVersion: 2, owner: 'other' })).toBeUndefined();
    expect(await store.connections.get(id)).toMatchObject({ status: 'active', tokens: 'newer' });
    expect(await store.connections.end(id, byOperator, { tokenVersion: 2, owner })).toEqual({
      userId,
      tokens: 'newer',
    });
  });

  test('the end of a connection fails its syncs, releases its lease and notifies other processes', async () => {
    const other = await openStore({ url: opened.url, log: silent });
    const notices = new Set<string | undefined>();
    other.onNotice((notice) => notices.add(notice.connectionId));
    try {
      const { connectionId, lease, sync } = await running(store, 'acme');
      await until('the other to listen', () => notices.size > 0);
      const waiting = (await store.syncs.request(connectionId, 'full'))!;
      await store.connections.end(connectionId, byOperator);
      await until('the notice', () => notices.has(connectionId));
      for (const id of [sync.id, waiting])
        expect(await store.syncs.get(id)).toMatchObject({ status: 'failed', error: byOperator });
      expect(await store.syncs.extendLease(lease)).toBe(false);
      await store.syncs.endSync(sync, lease, { status: 'done', error: null });
      expect(await store.connections.get(connectionId)).toMatchObject({ lastSyncAt: null, lastError: byOperator });
    } finally {
      await other.close();
    }
  });
});

describe('the refresh lease', () => {
  test('the refresh lease has one holder, and is for the current token pair only', async () => {
    const { id } = await store.connections.connect(consented());
    const lease = (owner: string, version = 1, ms = 60_000) => store.connections.leaseRefresh(id, version, owner, ms);
    expect(await lease('too new', 2)).toBeUndefined();
    const got = await Promise.all(Array.from({ length: 20 }, (_, i) => lease(`owner ${i}`)));
    expect(got.filter((answer) => answer !== undefined)).toEqual([{ takenOver: false, unanswered: false }]);
    const holder = `owner ${got.findIndex((answer) => answer !== undefined)}`;
    await store.connections.releaseRefresh(id, 'somebody else', { unanswered: true, takenOver: false });
    expect(await lease('next')).toBeUndefined();
    await store.connections.releaseRefresh(id, holder, { unanswered: true, takenOver: false });
    expect(await lease('next')).toEqual({ takenOver: false, unanswered: true });

    expect(await store.connections.saveRefreshed(id, 1, 'newer', 60_000)).toBe(true);
    expect(await store.connections.saveRefreshed(id, 1, 'older', 60_000)).toBe(false);
    expect(await lease('of the pair before', 1)).toBeUndefined();
    expect(await lease('third', 2)).toEqual({ takenOver: false, unanswered: false });
  });

  test('the holder of a refresh lease learns that it took over an expired one', async () => {
    const { id } = await store.connections.connect(consented());
    await store.connections.leaseRefresh(id, 1, 'died', 1);
    const lease = await until('it to run out', () => store.connections.leaseRefresh(id, 1, 'next', 60_000));
    expect(lease).toEqual({ takenOver: true, unanswered: false });
    // The one before may still save its pair.
    await store.connections.releaseRefresh(id, 'next', { unanswered: true, takenOver: true });
    expect(await store.connections.leaseRefresh(id, 1, 'third', 60_000)).toEqual({ takenOver: true, unanswered: true });
  });

  test('an ended connection gets no refresh lease, and no tokens are saved for it', async () => {
    const { id } = await store.connections.connect(consented());
    await store.connections.end(id, byOperator);
    expect(await store.connections.leaseRefresh(id, 1, 'late', 60_000)).toBeUndefined();
    expect(await store.connections.saveRefreshed(id, 1, 'late', 60_000)).toBe(false);
  });
});

test('the state of a connect attempt can be used once, even by many callers at the same moment', async () => {
  const until = new Date(Date.now() + 60_000);
  const used = await Promise.all(Array.from({ length: 10 }, () => store.connections.useState('a state', until)));
  expect(used.filter(Boolean)).toHaveLength(1);
  expect(await store.connections.useState('another', new Date(0))).toBe(true);
  expect(await store.connections.useState('another', new Date(0))).toBe(true);
});

test('counts and pages of assets match the connection, the company and the searched text', async () => {
  const { connectionId, lease, sync } = await running(store, 'searched');
  const names = ['50%_off.pdf', '50 x off.pdf', 'back\\slash', "quote's", 'ÄRGER.mov'];
  const assets = names.map((name, i) => listed(`search-${i}`, { name, size: 2 ** 40 + i }));
  const decision = { state: 'pending', reason: null, reset: true, due: true } as const;
  const page = { sync, lease, companyId: 'searched', assets, decide: () => decision, position: {} };
  await store.syncs.recordPage(page);
  const found = async (q: string) =>
    (await store.assets.search({ connectionId, q, limit: 10 })).map((asset) => names.indexOf(asset.name!));
  expect(await found('50%_')).toEqual([0]);
  expect(await found('\\')).toEqual([2]);
  expect(await found("'")).toEqual([3]);
  expect(await found('ärger')).toEqual([4]);
  expect(await found('search-1')).toEqual([1]);
  expect(
    (await store.assets.search({ companyId: 'searched', after: ['search-2', 'search-2'], limit: 10 })).length,
  ).toBe(2);
  expect(await store.counts.byConnection([connectionId])).toEqual([
    { connectionId, state: 'pending', skipped: false, count: 5, bytes: 0 },
  ]);
  expect(await store.assets.get('search-4')).toMatchObject({ size: 2 ** 40 + 4 });
});

test('wider filters and the full sync that they need are saved in one transaction', async () => {
  const { id } = await store.connections.connect(consented());
  const settings = { include: { assetTypes: ['videos'] } };
  const change = () => ({ settings, applyFilters: true, fullSync: true });
  const syncId = await store.connections.changeSettings(id, {}, change);
  expect(await store.syncs.get(syncId!)).toMatchObject({ connectionId: id, mode: 'full', status: 'waiting' });
  const [both] = await ask(
    opened.url,
    `SELECT c.xmin = s.xmin AS together FROM connections c JOIN syncs s ON s.connection_id = c.id WHERE c.id = '${id}'`,
  );
  expect(both).toEqual({ together: true });
});
