// @module-tag slow

import { afterEach, describe, expect, inject, test, vi } from 'vitest';
import { RetryLater } from '../../src/floor/errors.ts';
import { Limiter } from '../../src/pacing/adaptive-concurrency.ts';
import { HttpError } from '../../src/source/http.ts';
import { startTestLibrary } from '../support/library.ts';
import { newGround, startMirror } from '../support/mirror.ts';
import { freePort } from '../support/ports.ts';
import { byOperator } from '../support/reasons.ts';
import { connectAs, newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

const patience = 180_000;
let stage: Stage;
const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function open(environment: Record<string, string> = {}): Promise<Stage> {
  stage = await newStage({ environment: { CONNECTION_CONCURRENCY: '4', ...environment } });
  closing.push(() => stage.close());
  return stage;
}
/** Runs it in a process whose clock is this far ahead of the database's. */
async function ahead(ms: number, work: () => Promise<void>): Promise<void> {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms });
  await work().finally(() => vi.useRealTimers());
}
async function work(): Promise<void> {
  const worker = await startMirror(stage.ground, stage.library, 'worker');
  closing.push(() => worker.stop());
}

const shown = async (connectionId: string) => stage.mirror.api('GET', `/connections/${connectionId}`);
const mirrored = async (companyId: string) =>
  (await stage.assets(companyId)).filter((asset) => asset.state === 'mirrored').length;

describe('429 with Retry-After', { timeout: 4 * patience }, () => {
  test('429 with Retry-After makes one connection wait in all processes, and no other', async () => {
    await open();
    const [slow, other] = [await stage.company(), await stage.company()];
    await stage.upload(slow.companyId, 40);
    // Too few for its limit to change with the response times.
    await stage.upload(other.companyId, 15);
    for (const { connectionId } of [slow, other]) await stage.sync(connectionId);
    await stage.admin.addFault({ endpoint: 'asset', userId: slow.userId, skip: 5, retryAfter: 7200 });
    await stage.admin.clearRequests();
    await Promise.all([work(), work()]);
    await until('the other one to be whole', async () => (await mirrored(other.companyId)) === 15, patience);
    await until('the first to wait', async () => (await shown(slow.connectionId)).adaptiveLimit.delayedUntil, patience);
    await until(
      'nobody to have any of it',
      async () => (await stage.assets(slow.companyId)).every((a) => a.leaseUntil === null),
      patience,
    );

    // Five were answered; then each of the four in flight may have sent one request.
    const ids = new Set(await stage.ids(slow.companyId));
    const asked = (await stage.admin.requests({ endpoint: 'asset' })).filter(({ assetId }) => ids.has(assetId!));
    expect(asked.filter(({ status }) => status === 429).length).toBeLessThanOrEqual(4);
    const left = (await stage.assets(slow.companyId)).filter((asset) => asset.state !== 'mirrored');
    expect(left.length).toBeGreaterThanOrEqual(31);
    expect(left.every((asset) => asset.state === 'pending' && asset.attempts === 0)).toBe(true);
    expect(await shown(slow.connectionId)).toMatchObject({
      status: 'active',
      adaptiveLimit: {
        limit: 4,
        ceiling: 4,
        delayedUntil: expect.any(String),
      },
      lastError: expect.stringContaining('for 2h 00m, longer than the maximum; next request after 1h 00m'),
      reason: { code: 'asked_to_wait', askedMs: 7_200_000, retryInMs: 3_600_000, text: expect.any(String) },
    });
    expect(await shown(other.connectionId)).toMatchObject({
      adaptiveLimit: { limit: 4, ceiling: 4, delayedUntil: null },
      lastError: null,
    });
  });

  test('a connection that waits gives the reason of its wait, then the problem of its last sync or the end of its grant', async () => {
    await open();
    const { connectionId } = await stage.company();
    await stage.store.connections.delay(connectionId, 60_000, { code: 'no_reader' });
    const request = await stage.store.syncs.request(connectionId, 'full', { companyId: 'unknown' });
    await stage.query(`UPDATE connections SET delayed_until = NULL`);
    await stage.run(connectionId);
    const unknown = {
      code: 'company_not_readable',
      companyId: 'unknown',
      text: 'company unknown: this connection cannot read it',
    };
    expect(await stage.mirror.api('GET', `/syncs/${request}`)).toMatchObject({ error: unknown.text, reason: unknown });
    expect(await shown(connectionId)).toMatchObject({ lastError: unknown.text, reason: unknown });

    await stage.query(`UPDATE connections SET delayed_until = now() + interval '1 min'`);
    const { lastError, reason } = await shown(connectionId);
    expect(reason).toEqual({ code: 'no_reader', text: lastError });

    await stage.store.connections.end(connectionId, byOperator);
    expect(await shown(connectionId)).toMatchObject({
      adaptiveLimit: { delayedUntil: null },
      reason: { code: 'disconnected_by_operator' },
    });
  });

  test('work that is under way sends no more requests while its connection waits', async () => {
    await open();
    const { connectionId } = await stage.company();
    await stage.store.connections.delay(connectionId, 60_000, { code: 'error', text: 'asked to wait' });
    await stage.admin.clearRequests();
    const call = stage.deps.withToken(connectionId, async () => 'asked');
    await expect(call).rejects.toThrow(RetryLater);
    await expect(call).rejects.toMatchObject({ scope: 'asset' });
    expect(await stage.admin.requests()).toEqual([]);
  });

  test.each([-600_000, 600_000])(
    'the wait of a connection follows the clock of the database, also if that of the process is %i ms ahead',
    async (ms) => {
      await open();
      const { companyId, connectionId } = await stage.company();
      const [id] = await stage.upload(companyId);
      await stage.sync(connectionId);
      await stage.store.connections.delay(connectionId, 60_000, { code: 'error', text: 'asked to wait' });
      const call = () => stage.deps.withToken(connectionId, async () => 'asked');
      await ahead(ms, async () => {
        const { waitMs } = await call().then(expect.fail, (error) => error);
        expect(waitMs).toBeGreaterThan(50_000);
        expect(waitMs).toBeLessThanOrEqual(60_000);
        expect((await shown(connectionId)).adaptiveLimit.delayedUntil).not.toBeNull();
        const { explanation } = await stage.mirror.api('GET', `/assets/${id}`);
        expect(explanation.join()).toContain('Its connection waits until');
      });
      await stage.query(`UPDATE connections SET delayed_until = now() - interval '1 s'`);
      await ahead(ms, async () => {
        expect(await call()).toBe('asked');
        expect((await shown(connectionId)).adaptiveLimit.delayedUntil).toBeNull();
      });
    },
  );

  test('429 from a download makes the connection wait, and it continues by itself', async () => {
    await open();
    const { companyId, connectionId } = await stage.company();
    await stage.upload(companyId, 12);
    await stage.admin.addFault({ endpoint: 'media', companyId, skip: 2, times: 1, retryAfter: 3 });
    await stage.sync(connectionId);
    await work();
    await until('all to be mirrored', async () => (await mirrored(companyId)) === 12, patience);
    expect((await stage.assets(companyId)).every((asset) => asset.attempts === 0)).toBe(true);
    expect((await stage.store.connections.get(connectionId))!.adaptiveLimit).toMatchObject({ strikes: 0 });
  });

  test('a link that always answers 429 is requested less and less often, and the other assets are mirrored', async () => {
    await open({ CONNECTION_CONCURRENCY: '1' });
    const { companyId, connectionId } = await stage.company();
    const [id] = await stage.upload(companyId);
    await stage.admin.addFault({ endpoint: 'media', assetId: id!, retryAfter: 1 });
    await stage.sync(connectionId);
    await work();
    const asset = async () => (await stage.assets(companyId)).find((one) => one.id === id)!;
    await until('three waits in a row', async () => (await asset()).waits >= 3, patience);
    expect(await asset()).toMatchObject({ attempts: 0, reason: { code: 'asked_to_wait' } });

    // The next waits take at least 4 and 8 seconds, and the connection waits for one second of each.
    await stage.upload(companyId, 5);
    await stage.sync(connectionId);
    await until('the others to be mirrored', async () => (await mirrored(companyId)) === 5, patience);
    expect((await asset()).waits).toBeLessThanOrEqual(5);

    await stage.admin.clearFaults();
    await until('this one, too', async () => (await mirrored(companyId)) === 6, patience);
    expect(await asset()).toMatchObject({ attempts: 0, waits: 0, reason: null });
  });
});

test('5xx answers to one connection slow down and pause that connection only, and it recovers by itself', {
  timeout: 5 * patience,
}, async () => {
  await open({ CONNECTION_CONCURRENCY: '2' });
  const [slow, other] = [await stage.company(), await stage.company()];
  await stage.upload(slow.companyId, 60);
  await stage.upload(other.companyId, 60);
  for (const { connectionId } of [slow, other]) await stage.sync(connectionId);
  await stage.admin.addFault({ endpoint: '*', userId: slow.userId, status: 502 });
  await work();
  await until('it to be slow', async () => (await shown(slow.connectionId)).adaptiveLimit.limit === 1, patience);
  await until('the other one to be whole', async () => (await mirrored(other.companyId)) === 60, patience);
  expect((await shown(other.connectionId)).adaptiveLimit).toMatchObject({ ceiling: 2, delayedUntil: null });
  await until(
    'it to be left in peace',
    async () => (await shown(slow.connectionId)).adaptiveLimit.delayedUntil,
    patience,
  );
  expect((await shown(slow.connectionId)).lastError).toMatch(/answered 502; next request in/);

  await stage.admin.clearFaults();
  await until('it to be whole, too', async () => (await mirrored(slow.companyId)) === 60, 2 * patience);
  expect((await shown(slow.connectionId)).adaptiveLimit).toMatchObject({ ceiling: 2, delayedUntil: null });
  expect((await stage.store.connections.get(slow.connectionId))!.adaptiveLimit.strikes).toBe(0);
});

test('errors that two processes see at the same time halve the limit once, although their clocks differ', async () => {
  await open();
  const { connectionId } = await stage.company();
  const limiter = new Limiter({ store: stage.store, log: stage.deps.log, perConnection: 8 });
  const error = new HttpError('the library', 502);
  await limiter.adaptTo(connectionId, error);
  for (const ms of [-600_000, 600_000]) await ahead(ms, () => limiter.adaptTo(connectionId, error));
  expect((await stage.store.connections.get(connectionId))!.adaptiveLimit).toMatchObject({ limit: 4 });
});

test('the first success after a restart ends the failures in a row that an earlier process has counted', async () => {
  await open();
  const { connectionId } = await stage.company();
  const { connections } = stage.store;
  const { adaptiveLimit } = (await connections.get(connectionId))!;
  await connections.setAdaptiveLimit(connectionId, adaptiveLimit, { ...adaptiveLimit, limit: 1, strikes: 6 });
  const limiter = new Limiter({ store: stage.store, log: stage.deps.log, perConnection: 8 });
  await limiter.watch(connectionId, undefined, async () => 'an answer');
  expect((await connections.get(connectionId))!.adaptiveLimit).toMatchObject({ limit: 1, strikes: 0 });
});

test('failures in a row end with a later success if the database was not available at the first', async () => {
  await open();
  const { connectionId } = await stage.company();
  const { connections } = stage.store;
  const { adaptiveLimit } = (await connections.get(connectionId))!;
  await connections.setAdaptiveLimit(connectionId, adaptiveLimit, { ...adaptiveLimit, strikes: 3 });
  let isUnreachable = true;
  const concurrency: typeof connections.concurrency = async (id) => {
    if (isUnreachable) throw new Error('the database is away');
    return connections.concurrency(id);
  };
  const store = { ...stage.store, connections: { ...connections, concurrency } };
  const limiter = new Limiter({ store, log: stage.deps.log, perConnection: 8 });
  const succeed = () => limiter.watch(connectionId, undefined, async () => 'an answer');
  await succeed();
  expect((await connections.get(connectionId))!.adaptiveLimit.strikes).toBe(3);
  isUnreachable = false;
  await succeed();
  expect((await connections.get(connectionId))!.adaptiveLimit.strikes).toBe(0);
});

test('a process with an old limit cannot change it, and the dispatcher enqueues no more than it allows', async () => {
  await open();
  const { companyId, connectionId } = await stage.company();
  await stage.upload(companyId, 10);
  await stage.sync(connectionId);
  const { connections, assets } = stage.store;
  const { adaptiveLimit: untried } = (await connections.get(connectionId))!;
  const slow = { limit: 1, limitAtObjection: 2, strikes: 0, slowedAt: 5 };
  expect(await connections.setAdaptiveLimit(connectionId, untried, slow)).toBe(true);
  expect(await connections.setAdaptiveLimit(connectionId, untried, { ...untried, limit: 2 })).toBe(false);
  expect((await connections.get(connectionId))!.adaptiveLimit).toEqual(slow);
  expect(await assets.dispatch({ perConnection: 4 })).toHaveLength(1);
  expect(await assets.dispatch({ perConnection: 4 })).toHaveLength(0);
  expect(await connections.setAdaptiveLimit(connectionId, slow, untried)).toBe(true);
  expect(await assets.dispatch({ perConnection: 4 })).toHaveLength(3);
});

test('the queue stays short during a large first sync, and the asset of another connection arrives', {
  timeout: 5 * patience,
}, async () => {
  const count = 20_000;
  const port = await freePort();
  const ground = await newGround({
    port,
    redis: inject('redis'),
    environment: { CONNECTION_CONCURRENCY: '64' },
  });
  closing.push(() => ground.clear());
  const { library, admin } = await startTestLibrary({
    redirectUris: [`${ground.publicUrl}/oauth/callback`],
    content: { synthetic: count, sizes: [1000, 10_000] },
  });
  closing.push(() => library.close());
  await admin.addUser({ id: 'other', name: 'Other', email: 'other@example.com' });
  await admin.addCompany({ id: 'other', name: 'Other', userIds: ['other'] });
  const mirror = await startMirror(ground, library);
  closing.push(() => mirror.stop());
  const { store, queues } = mirror.service.context;
  const other = await connectAs(mirror, 'other');
  const first = await connectAs(mirror, library.users[0]!.id);

  let mostJobs = 0;
  const seen = async () => {
    const { assets } = await queues.counts();
    mostJobs = Math.max(mostJobs, assets.waiting! + assets.active! + assets.delayed!);
    return (await store.counts.byConnection([first])).reduce((sum, row) => sum + row.count, 0);
  };
  await until('some to be listed', async () => (await seen()) >= count / 10, patience);
  const { id } = await admin.addAsset({
    companyId: 'other',
    name: 'new.bin',
    mimeType: 'application/octet-stream',
    assetType: 'documents',
    thumbnail: false,
    content: { text: 'new' },
  });
  await mirror.api('POST', `/connections/${other}/resync`, { mode: 'incremental' });
  await until(
    'the other one’s asset',
    async () => {
      await seen();
      return (await store.assets.get(id))?.state === 'mirrored';
    },
    patience,
  );
  const pending = (await store.counts.byConnection([first])).find(({ state }) => state === 'pending');
  expect(pending!.count).toBeGreaterThan(count / 20);
  await until('all to be listed', async () => (await seen()) === count, 3 * patience);
  // At most 64 of each of the two.
  expect(mostJobs).toBeLessThanOrEqual(128);
});
