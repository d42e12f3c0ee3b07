import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { spawnMirror } from '../support/mirror.ts';
import { longAgo, newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterEach(async () => {
  await stage.admin.clearFaults();
});
afterAll(async () => {
  await stage?.close();
});

describe('the pages of a listing', () => {
  test('an interrupted listing does not move the high-water mark, and continues at its cursor', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 250);
    const broken = await stage.stopInTheMiddle({ companyId, connectionId });
    expect(broken).toMatchObject({ status: 'running', pages: 1, seen: 100, error: null });
    expect(await stage.highWaterMark(connectionId, companyId)).toBeNull();
    expect(await stage.ids(companyId)).toEqual(ids.slice(150).sort());

    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.store.syncs.get(broken.id)).toMatchObject({ status: 'done', pages: 3, seen: 250, new: 250 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 249_000);
  });

  test('uploads during an interrupted listing are found by the next sync, and no other asset is missed', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    await stage.stopInTheMiddle({ companyId, connectionId });
    const late = await stage.upload(companyId, 120, { uploadDate: longAgo + 3_600_000 });
    await stage.run(connectionId);
    expect(await stage.ids(companyId)).toEqual(ids.toSorted());
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 149_000);
    await stage.sync(connectionId);
    expect(await stage.ids(companyId)).toEqual([...ids, ...late].sort());
  });

  test('a listing that an error interrupts continues at its page', { tags: 'slow' }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    await stage.admin.addFault({ endpoint: 'assets', companyId, skip: 1, status: 500 });
    const id = (await stage.store.syncs.request(connectionId, 'incremental'))!;
    expect(await stage.run(connectionId)).toMatchObject({ outcome: 'interrupted' });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'running', pages: 1 });
    // An outage of some minutes does not cost the pages that are recorded.
    expect(await stage.run(connectionId)).toMatchObject({ outcome: 'interrupted' });
    await stage.admin.addFault({ endpoint: 'me', status: 502, times: 3 });
    expect(await stage.run(connectionId)).toMatchObject({ outcome: 'interrupted' });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'running', pages: 1 });
    await stage.query(
      `UPDATE syncs SET position = jsonb_set(position, ARRAY[$2, 'recordedAt'], to_jsonb($3::bigint)) WHERE id = $1`,
      [id, companyId, Date.now() - 15 * 60_000],
    );
    // Without progress for that long it has failed: it may be only this company, and others must be listed.
    await stage.run(connectionId);
    expect(await stage.store.syncs.get(id)).toMatchObject({
      status: 'failed',
      error: { code: 'http_status', status: 500 },
    });
    expect(await stage.highWaterMark(connectionId, companyId)).toBeNull();

    await stage.admin.clearFaults();
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', seen: 150, new: 50 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });

  /** Runs syncs whose pages are recorded by `record`, which gets the number of the page. */
  const runRecording = (connectionId: string, record: (page: number) => Promise<unknown>) => {
    const { store } = stage;
    let pages = 0;
    const recordPage: typeof store.syncs.recordPage = async (page) => {
      await record(++pages);
      return store.syncs.recordPage(page);
    };
    return stage.run(connectionId, { store: { ...store, syncs: { ...store.syncs, recordPage } } });
  };

  test('the next page is requested while a page is recorded', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 250);
    const requested = (pages: number) => async () => (await stage.listings(companyId)) === pages;
    await stage.store.syncs.request(connectionId, 'full');
    const run = await runRecording(connectionId, (page) => until('the next page', requested(Math.min(page + 1, 3))));
    expect(run).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });

  test('a listing whose page cannot be recorded continues at that page, although the next one was requested', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 250);
    const id = (await stage.store.syncs.request(connectionId, 'full'))!;
    const run = await runRecording(connectionId, async (page) => {
      if (page < 2) return;
      await until('the next page', async () => (await stage.listings(companyId)) === 3);
      throw new Error('as a test');
    });
    expect(run).toMatchObject({ outcome: 'interrupted' });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'running', pages: 1, seen: 100 });
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', pages: 3, seen: 250 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });

  test('a listing that has begun again fails at its next error: it might never end', { tags: 'slow' }, async () => {
    const { companyId, connectionId } = await stage.company();
    await stage.upload(companyId, 150);
    const { id } = await stage.stopInTheMiddle({ companyId, connectionId });
    await stage.admin.addFault({ endpoint: 'assets', companyId, times: 1, status: 400 });
    await stage.admin.addFault({ endpoint: 'assets', companyId, skip: 2, status: 500 });
    await stage.run(connectionId);
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'failed', error: { status: 500 } });
  });

  test('a listing begins again if the library no longer knows the cursor', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    const { id } = await stage.stopInTheMiddle({ companyId, connectionId });
    await stage.admin.addFault({ endpoint: 'assets', companyId, times: 1, status: 400 });
    await stage.run(connectionId);
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', pages: 3, seen: 250, new: 150 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });

  test('a sync of a killed process is continued by another process', { tags: 'slow' }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150, { status: 'unavailable' });
    await stage.admin.addFault({ endpoint: 'assets', companyId, skip: 1, latency: 60_000 });
    const worker = await spawnMirror(stage.ground, stage.library, 'worker');
    try {
      await until('the first page', async () => (await stage.ids(companyId)).length === 100);
    } finally {
      await worker.kill('SIGKILL');
    }
    await stage.admin.clearFaults();
    expect(await stage.run(connectionId)).toEqual({ outcome: 'busy', done: 0 });
    // Its lease has run out.
    await stage.query("UPDATE connections SET sync_until = now() - interval '1 second' WHERE id = $1", [connectionId]);
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 149_000);
  });
});
