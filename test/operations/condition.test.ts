// @module-tag slow
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { conditionOf } from '../../src/operations/connections/condition.ts';
import { byState } from '../../src/store/counts/states.ts';
import type { Connection } from '../../src/store/database/schema.ts';
import { why } from '../support/reasons.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const now = Date.parse('2026-03-01T12:00:00Z');
const hour = 3_600_000;
const connection = {
  status: 'active',
  lastError: null,
  connectedAt: new Date(now - 100 * hour),
  lastSyncAt: new Date(now - 60_000),
} as Connection;
const options = {
  byState: byState([]),
  isHeld: false,
  skipped: 0,
  syncInterval: 300_000,
  delayedUntil: null as string | null,
  now,
};
const ago = (ms: number) => ({ ...connection, lastSyncAt: new Date(now - ms) });

describe('the condition of a connection', () => {
  test.each<[string, Connection, Partial<typeof options>, string]>([
    ['synced a minute ago', connection, {}, 'up_to_date'],
    ['whose last sync failed', { ...connection, lastError: why }, {}, 'error'],
    ['with failed assets', connection, { byState: { ...options.byState, failed: 1 } }, 'assets_failed'],
    ['with assets to transfer', connection, { byState: { ...options.byState, pending: 2, failed: 1 } }, 'mirroring'],
    ['whose assets are all skipped', connection, { skipped: 3 }, 'all_skipped'],
    ['that was never synced', { ...connection, connectedAt: new Date(now), lastSyncAt: null }, {}, 'first_sync'],
    ['that was never synced, for a day', { ...connection, lastSyncAt: null }, {}, 'late'],
    ['with a held company', { ...connection, lastError: why }, { isHeld: true }, 'held'],
    ['that waits', { ...connection, lastError: why }, { delayedUntil: '2026-03-01T12:10:00Z' }, 'waiting'],
    ['paused by an operator', { ...connection, status: 'paused', lastError: why }, {}, 'paused'],
    ['disconnected', { ...connection, status: 'disconnected', lastError: why }, {}, 'disconnected'],
    ['with an interval of 5 minutes, synced 20 minutes ago', ago(20 * 60_000), {}, 'up_to_date'],
    ['with an interval of 5 minutes, synced 22 minutes ago', ago(22 * 60_000), {}, 'late'],
    ['with an interval of a day, synced 29 hours ago', ago(29 * hour), { syncInterval: 24 * hour }, 'up_to_date'],
    ['with an interval of a day, synced 31 hours ago', ago(31 * hour), { syncInterval: 24 * hour }, 'late'],
  ])('the condition is right for a connection %s', (_, subject, changed, code) => {
    const found = conditionOf(subject, { ...options, ...changed });
    expect(found.code).toBe(code);
    expect(found.until).toBe(code === 'waiting' ? '2026-03-01T12:10:00Z' : null);
  });
});

describe('a library that fails', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene();
  });
  afterAll(() => scene.close());

  test('a failed sync shows as an error of the connection and in the totals until a sync succeeds', async () => {
    const { mirror, connectionId, admin } = scene;
    const read = async () => {
      const { condition } = await mirror.api('GET', `/connections/${connectionId}`);
      return [condition.code, (await mirror.api('GET', '/status')).connections.troubled];
    };
    expect(await read()).toEqual(['up_to_date', 0]);
    await admin.setFaults({ endpoint: 'assets', status: 500 });
    await scene.resync();
    await until('the error to show', async () => (await read())[0] === 'error');
    expect(await read()).toEqual(['error', 1]);
    await admin.clearFaults();
    await scene.resync();
    await until('the error to go', async () => (await read())[0] === 'up_to_date');
    expect(await read()).toEqual(['up_to_date', 0]);
  });
});
