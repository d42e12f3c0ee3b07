// @module-tag slow
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { removeLeftovers } from '../../../src/mirror/removal/remove-gone.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { hashOf } from '../../../src/store/removals/tombstones.ts';
import { locking, newLockedScene } from '../../storage/locking.ts';
import { ask } from '../../support/database.ts';
import { contentOf, richest } from '../../support/mirror.ts';
import { newScene, type Scene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';
import { erase, mirroredFilm, signal } from './erasing.ts';

const count = async (url: string, from: string) => Number((await ask(url, `SELECT count(*) FROM ${from}`))[0]!.count);

describe('erasing assets', () => {
  let scene: Scene;
  beforeAll(async () => {
    const { redis, s3 } = richest();
    scene = await newScene({ redis, s3, environment: { TRANSFER_STALL_TIMEOUT: '3s' } });
  });
  afterAll(() => scene?.close());

  const film = (more: object = {}) => mirroredFilm(scene, more);
  const refusal = (path: string, body: object) =>
    scene.mirror.api('POST', path, body).then(
      () => 'done',
      (error) => String(error),
    );

  test('an erased asset leaves a tombstone and a certificate, and is never mirrored again', async () => {
    const id = await film();
    const kept = await film();
    expect(await scene.keys(id)).toHaveLength(6);
    const preview = await scene.mirror.api('POST', '/erasures/preview', { assetIds: [id] });
    expect(preview).toMatchObject({ assets: 1, held: 0, bytes: (await scene.mirror.asset(id)).bytes });
    expect(await scene.keys(id)).toHaveLength(6);

    const url = scene.ground.environment.DATABASE_URL!;
    await ask(url, `INSERT INTO upload_keys (key, asset_id) VALUES ('acme/unfinished', '${id}')`);
    const certificate = await erase(scene, { assetIds: [id] });
    // An unfinished upload that the database has lost is found by its key.
    const open = [{ id: 'upload-1', key: 'acme/unfinished' }];
    expect(await scene.mirror.store.uploads.strays(open, { shared: true })).toEqual(new Set(['upload-1']));
    expect(certificate).toMatchObject({
      version: 1,
      reason: 'requested',
      requestedBy: 'ADMIN_TOKEN',
      assets: { erased: 1, held: 0 },
      objects: 6,
      left: 0,
      erased: [{ sha256: hashOf(id), objects: 6 }],
      remaining: [],
    });
    expect(JSON.stringify(certificate)).not.toContain(id);
    expect(await scene.keys(id)).toEqual([]);
    expect(await scene.keys(kept)).toHaveLength(6);
    const tombstone = await contentOf(scene.storage, `_mirror/tombstones/${hashOf(id)}.json`);
    expect(JSON.parse(tombstone!.toString())).toMatchObject({
      hash: hashOf(id),
      erasedBy: 'ADMIN_TOKEN',
      reason: 'requested',
    });
    // An inventory between request and erasure lists its objects.
    const times = `SELECT bool_and(erased_at > requested_at) AS later FROM tombstones, erasures WHERE hash = '${hashOf(id)}'`;
    expect(await ask(url, times)).toEqual([{ later: true }]);
    for (const table of ['asset_history', 'events', 'erasure_assets', 'verification_lines', 'upload_keys']) {
      expect(await count(url, `${table} WHERE asset_id = '${id}'`)).toBe(0);
    }
    expect(await count(url, `events WHERE data::text LIKE '%${id}%'`)).toBe(0);

    // The library still lists it.
    await scene.resync();
    await scene.mirror.quiet();
    expect(await scene.mirror.asset(id)).toBeUndefined();
    expect(await scene.keys(id)).toEqual([]);
    await scene.mirror.store.syncs.request(scene.connectionId, 'full', { assetIds: [id] });
    await scene.mirror.quiet();
    expect(await scene.mirror.asset(id)).toBeUndefined();
    await expect(scene.mirror.api('GET', `/assets/${id}`)).rejects.toThrow(/asset_erased.*requested/s);
  });

  test('an asset that GONE_RETENTION removes before its erasure begins leaves a tombstone in the bucket, too', async () => {
    const id = await film();
    const { store } = scene.mirror;
    const leased = await store.removals.takeForRemoval(id, { gone: false, leaseMs: 60_000 });
    const erasing = erase(scene, { assetIds: [id] });
    await until('the request', async () => (await store.removals.waitingErasures('', 10)).length === 1);
    expect(await store.removals.finishRemoval(leased!, { objects: 0, bytes: 0, left: [], accepted: false })).toBe(true);
    expect(await erasing).toMatchObject({ assets: { erased: 1 } });
    expect(await contentOf(scene.storage, `_mirror/tombstones/${hashOf(id)}.json`)).toBeDefined();
  });

  test('a file that was stored by a worker that died before it recorded it is erased, too', async () => {
    await scene.admin.setFaults({ endpoint: 'media', stallAfter: 0 });
    const id = await scene.upload({ name: 'film.mp4' });
    await scene.resync();
    await scene.mirror.assetIn(id, 'transferring');
    await scene.storage.put(`acme/_/${id}/film.mp4`, 'stored');
    await scene.query(`UPDATE assets SET queued_at = NULL, lease_until = NULL, lease = lease + 1 WHERE id = '${id}'`);
    expect(await erase(scene, { assetIds: [id] })).toMatchObject({ assets: { erased: 1 }, objects: 1, bytes: 6 });
    expect(await scene.keys(id)).toEqual([]);
    await scene.admin.clearFaults();
  });

  test('two erasures of the same asset have the same counts', async () => {
    const id = await film();
    const { store } = scene.mirror;
    const leased = await store.removals.takeForRemoval(id, { gone: false, leaseMs: 60_000 });
    const erasing = [erase(scene, { assetIds: [id] }), erase(scene, { assetIds: [id] })];
    await until('the requests', async () => (await store.removals.waitingErasures('', 10)).length === 2);
    await store.removals.stopRemoval(leased!);
    for (const certificate of await Promise.all(erasing)) {
      expect(certificate).toMatchObject({ objects: 6, erased: [{ sha256: hashOf(id), objects: 6 }] });
    }
  });

  test('neither reports nor the audit log nor the log name an erased asset', async () => {
    const [id, other] = [await film(), await film()];
    const [{ key }, { key: otherKey }] = [await scene.mirror.asset(id), await scene.mirror.asset(other)];
    const finding = (assetId: string, key: string) => ({ assetId, key, text: 'damaged' });
    const both = [finding(id, key), finding(other, otherKey)];
    const report = {
      loss: { compared: 2, examples: both },
      sample: { assets: 2, damaged: both, unreadable: both },
      problems: { count: 2, lines: [`${key}: unreadable`, `${otherKey}: unreadable`] },
    };
    await scene.query(`
      INSERT INTO drills (id, sample, scheduled, status, report) VALUES ('d', 2, false, 'failed', '${JSON.stringify(report)}')`);
    await scene.query(`INSERT INTO verifications (id, status) VALUES ('v', 'done')`);
    const [stray, otherStray] = [key, otherKey].map((at) => `${at}.stray`);
    await scene.query(`
      INSERT INTO verification_lines (verification_id, number, mark, key, difference)
      VALUES ('v', 1, '+', '${stray}', true), ('v', 2, '+', '${otherStray}', true)`);
    await erase(scene, { assetIds: [id] });
    expect((await scene.query<{ report: object }>(`SELECT report FROM drills WHERE id = 'd'`))[0]!.report).toEqual({
      loss: { compared: 2, examples: [finding(other, otherKey)] },
      sample: { assets: 2, damaged: [finding(other, otherKey)], unreadable: [finding(other, otherKey)] },
      problems: { count: 2, lines: [`${otherKey}: unreadable`] },
    });
    const lines = await scene.query(`SELECT key FROM verification_lines WHERE verification_id = 'v'`);
    expect(lines).toEqual([{ key: otherStray }]);

    expect(await refusal('/erasures', { assetIds: [id], reason: 'again' })).toMatch(/asset_not_found/);
    const { entries } = await scene.mirror.api('GET', '/audit?action=erase');
    expect(entries[0]).toMatchObject({ outcome: 'refused', code: 'asset_not_found', request: { assets: 1 } });
    expect(JSON.stringify(entries)).not.toContain(id);

    await scene.query(`
      INSERT INTO leftovers (hash, key, version_id, bytes, retry_at) VALUES ('${hashOf(id)}', '${key}', 'v1', 5, now())`);
    const { store, log } = scene.mirror.service.context;
    const storage: Storage = {
      ...scene.storage,
      purge: () => {
        throw new Error('refused');
      },
    };
    const before = scene.mirror.lines.length;
    await removeLeftovers({ store, storage, log, leaseMs: 60_000, signal });
    const since = scene.mirror.lines.slice(before);
    expect(since).toContainEqual(expect.objectContaining({ event: 'removal.failed', hash: hashOf(id) }));
    expect(JSON.stringify(since)).not.toContain(id);
    await scene.query('DELETE FROM leftovers');
  });

  test('an asset under a hold is not erased, and the certificate says so', async () => {
    const [held, other] = [await film({ projectId: undefined }), await film()];
    expect(await scene.mirror.api('POST', '/holds', { kind: 'asset', ids: [held], reason: 'case 42' })).toEqual({
      changed: 1,
    });
    expect((await scene.mirror.api('GET', '/holds')).holds).toMatchObject([
      { kind: 'asset', id: held, reason: 'case 42', heldBy: 'ADMIN_TOKEN' },
    ]);
    const certificate = await erase(scene, { assetIds: [held, other] });
    expect(certificate).toMatchObject({
      assets: { erased: 1, held: 1 },
      notErased: [{ sha256: hashOf(held), reason: 'held' }],
    });
    expect(await scene.keys(held)).toHaveLength(6);
    expect(await scene.keys(other)).toEqual([]);

    const hold = { kind: 'connection', ids: [scene.connectionId] };
    await scene.mirror.api('POST', '/holds', hold);
    await scene.mirror.api('POST', '/holds/release', { kind: 'asset', ids: [held] });
    expect(await scene.mirror.api('POST', '/erasures/preview', { assetIds: [held] })).toMatchObject({
      assets: 0,
      held: 1,
    });
    expect(await scene.mirror.api('POST', '/holds/release', hold)).toEqual({ changed: 1 });
    expect(await erase(scene, { assetIds: [held] })).toMatchObject({ assets: { erased: 1, held: 0 } });
  });

  test('a request that names nothing, two things or an unknown asset erases nothing', async () => {
    expect(await refusal('/erasures', { reason: 'x' })).toMatch(/invalid_request/);
    expect(await refusal('/erasures', { reason: 'x', companyId: 'acme', projectId: 'p' })).toMatch(/invalid_request/);
    expect(await refusal('/erasures', { companyId: 'acme' })).toMatch(/400/);
    expect(await refusal('/erasures', { reason: 'x', assetIds: ['no-such-asset'] })).toMatch(/asset_not_found/);
    expect(await refusal('/erasures', { reason: 'x', projectId: 'no-such-project' })).toMatch(/nothing_to_erase/);
    expect(await refusal('/holds', { kind: 'asset', ids: ['no-such-asset'] })).toMatch(/asset_not_found/);
  });
});

describe.each(locking.filter(({ there }) => there))('erasing locked assets on $name', ({ start }) => {
  let at: Awaited<ReturnType<typeof newLockedScene>>;
  beforeAll(async () => {
    at = await newLockedScene(start, 'compliance:40s');
  });
  afterAll(() => at?.close());

  test('what is locked is named in the certificate, and removed when its lock has ended', async () => {
    const { place, bucket, scene } = at;
    const id = await scene.film();
    await scene.resync();
    await scene.mirror.quiet();
    const { key } = await scene.mirror.asset(id);
    const began = Date.now();
    const certificate = await erase(scene, { assetIds: [id] });
    expect(certificate).toMatchObject({
      assets: { erased: 1 },
      objects: expect.any(Number),
      left: 1,
      remaining: [{ key }],
    });
    expect(Date.parse(certificate.remaining[0]!.lockedUntil!)).toBeGreaterThan(began - 1000);
    const mine = async () => (await place.versions(bucket)).filter((version) => version.key.includes(id));
    expect((await mine()).filter(({ isMarker }) => !isMarker)).toHaveLength(1);

    const { store, storage, log } = scene.mirror.service.context;
    await until('the locked version to be removed', async () => {
      await removeLeftovers({ store, storage, log, leaseMs: 60_000, signal });
      // A lock that had not quite ended is tried again a day later.
      await ask(scene.ground.environment.DATABASE_URL!, 'UPDATE leftovers SET retry_at = least(retry_at, now())');
      return (await mine()).length === 0;
    });
    const { id: erasureId } = (await scene.mirror.api('GET', '/erasures')).erasures[0];
    expect(await scene.mirror.api('GET', `/erasures/${erasureId}`)).toMatchObject({ left: 0 });
  });
});
