// @module-tag slow
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { syncsDue, untilARound } from '../support/rounds.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

describe('invalid_grant for a refresh', () => {
  let scene: Scene;
  beforeEach(async () => {
    // Only the end of the connection ends a stalled transfer.
    scene = await newScene({ environment: { TRANSFER_STALL_TIMEOUT: '10m' } });
  });
  afterEach(async () => {
    await scene?.close();
  });
  const events = async () =>
    scene.mirror.lines.filter(
      (line) => line.msg === 'connection disconnected' && line.connectionId === scene.connectionId,
    );

  test('a revoked grant ends the connection once, stops all its jobs, and keeps its records for a reconnect', async () => {
    const size = 5_000_000;
    const slow = await Promise.all(
      [1, 2, 3].map((n) => scene.upload({ name: `slow ${n}`, content: { seed: n, size } })),
    );
    const waiting = await Promise.all(
      [4, 5, 6, 7].map((n) => scene.upload({ name: `waiting ${n}`, uploadDate: 1000 + n })),
    );
    for (const assetId of slow) await scene.admin.addFault({ endpoint: 'media', assetId, stallAfter: 1_000_000 });
    for (const assetId of waiting) await scene.admin.addFault({ endpoint: 'asset', assetId, latency: 1500 });
    await scene.resync();
    for (const id of slow) await scene.mirror.assetIn(id, 'transferring');

    await scene.admin.endConnections();
    await scene.mirror.api('POST', `/connections/${scene.connectionId}/resync`, { mode: 'incremental' });
    const connection = await until('the end to be noticed', async () => {
      const found = await scene.mirror.api('GET', `/connections/${scene.connectionId}`);
      return found.status === 'disconnected' && found;
    });
    expect(connection.lastError).toMatch(/disconnected the app or lost access/);
    expect(connection.reason).toEqual({ code: 'grant_ended', text: connection.lastError });
    await until('all jobs to stop', async () => {
      const { queues, assets } = await scene.mirror.api('GET', '/status');
      return queues.assets.active === 0 && assets.byState.transferring === 0;
    });
    await until('the end to be logged', async () => (await events()).length > 0);
    expect(await events()).toHaveLength(1);
    await scene.admin.clearRequests();
    for (const id of [...slow, ...waiting]) {
      expect(await scene.mirror.asset(id)).toMatchObject({ state: 'pending', attempts: 0 });
    }

    await scene.admin.clearFaults();
    expect(await scene.mirror.connect()).toBe(scene.connectionId);
    for (const id of [...slow, ...waiting])
      expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
    expect((await scene.mirror.api('GET', `/connections/${scene.connectionId}`)).status).toBe('active');
    expect((await scene.admin.connections())[0]!.refreshTokens).toBe(1);
  });

  test('a disconnected connection sends no requests to the library', async () => {
    await scene.admin.endConnections();
    await scene.resync({ mode: 'incremental' });
    await until('the end to be noticed', async () => (await events()).length > 0);
    await scene.admin.clearRequests();
    await expect(scene.resync()).rejects.toThrow(/409.*connection_disconnected/);
    await scene.mirror.stop();
    await scene.query(syncsDue);
    await scene.restart();
    await until('a round of the dispatcher', async () => (await scene.query(untilARound)).length === 0);
    // Jobs that it added have run then.
    await scene.mirror.stop();
    expect(await scene.admin.requests()).toEqual([]);
  });

  test('errors of the token endpoint, network or database never end a connection', async () => {
    const id = await scene.upload();
    await scene.admin.expireTokens();
    await scene.admin.setFaults(
      { endpoint: 'token', times: 1, status: 500 },
      { endpoint: 'token', skip: 1, times: 1, status: 401, body: { error: 'invalid_client' } },
      { endpoint: 'token', skip: 2, times: 1, status: 400, body: { error: 'invalid_request' } },
      { endpoint: 'token', skip: 3, times: 1, status: 429, retryAfter: 1 },
    );
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect((await scene.mirror.api('GET', `/connections/${scene.connectionId}`)).status).toBe('active');
    expect(await events()).toEqual([]);
  });
});
