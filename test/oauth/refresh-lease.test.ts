import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { Disconnected } from '../../src/floor/errors.ts';
import { until } from '../support/until.ts';
import { latch } from './relay.ts';
import { failureOf, lost, newTokensGround } from './tokens-ground.ts';

const ground = await newTokensGround();
const {
  expectDisconnected,
  expectStillConnected,
  newConnection,
  refreshes,
  relay,
  saved,
  startProcess,
  store,
  tokensOf,
  works,
} = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('the refresh lease', () => {
  it('a process that dies before the library has rotated costs only the time of its refresh lease', {
    tags: 'slow',
  }, async () => {
    const connection = await newConnection();
    const held = latch();
    relay.before = async (response) => {
      await held.pass();
      await until('the end of the connection', () => response.destroyed);
    };
    const dying = await startProcess(connection.id, { leaseMs: 1500 });
    dying.go();
    await held.reached;
    await dying.kill();
    held.open();
    relay.before = undefined;
    expect(await tokensOf().getAccessToken(connection.id)).toMatchObject({ version: 2 });
    await expectStillConnected(connection.id);
  });

  it('a process that dies before it has saved the new pair ends the connection with that reason', {
    tags: 'slow',
  }, async () => {
    const connection = await newConnection();
    const held = latch();
    relay.after = held.pass;
    const dying = await startProcess(connection.id, { leaseMs: 1500 });
    dying.go();
    await held.reached;
    await dying.kill();
    held.open();
    relay.after = undefined;
    const error = await failureOf(tokensOf({ leaseMs: 1000 }).getAccessToken(connection.id));
    expect(error).toBeInstanceOf(Disconnected);
    await expectDisconnected(connection.id, lost);
  });

  it('a process that pauses for longer than its refresh lease can still save its new pair', async () => {
    const connection = await newConnection();
    const held = latch();
    relay.after = held.pass;
    const renewRefresh = async () => {};
    const still = { ...store, connections: { ...store.connections, renewRefresh } };
    const slow = tokensOf({ store: still, leaseMs: 200, instance: 'slow' }).getAccessToken(connection.id);
    await held.reached;
    relay.after = undefined;
    const quick = tokensOf({ leaseMs: 60_000, instance: 'quick' }).getAccessToken(connection.id);
    // The other process has taken over, and got invalid_grant.
    await until('its answer', () => relay.answered === 1);
    await expectStillConnected(connection.id);
    held.open();
    expect(await slow).toMatchObject({ version: 2 });
    expect(await quick).toEqual(await slow);
    await expectStillConnected(connection.id);
  });

  it('invalid_grant to a process that paused while another one refreshed does not end the connection', {
    tags: 'slow',
  }, async () => {
    const connection = await newConnection();
    const [late, delayed] = [latch(), latch()];
    relay.before = late.pass;
    const frozen = await startProcess(connection.id, { leaseMs: 1500 });
    frozen.go();
    await late.reached;
    frozen.freeze();
    relay.before = undefined;
    relay.after = delayed.pass;
    const other = tokensOf({ instance: 'other' }).getAccessToken(connection.id);
    await delayed.reached;
    // The library has rotated. The frozen process gets that answer before the other process has its own.
    relay.after = undefined;
    late.open();
    await until('the answer to the frozen one', () => relay.answered === 1);
    frozen.thaw();
    await until('the frozen one to have read it', async () => {
      const ignored = frozen.logLines().some(({ msg }) => msg === 'refusal of an earlier token ignored');
      return ignored || (await saved(connection.id)).status === 'disconnected';
    });
    await expectStillConnected(connection.id);
    delayed.open();
    const token = await other;
    expect(token).toMatchObject({ version: 2 });
    expect(await frozen.results()).toEqual([`2 ${token.value}`]);
    expect(await works(token.value)).toBe(true);
    await expectStillConnected(connection.id);
  });

  it('a process renews its refresh lease until the library answers', { tags: 'slow' }, async () => {
    const connection = await newConnection();
    const held = latch();
    relay.after = held.pass;
    const leaseMs = 5000;
    const slow = tokensOf({ leaseMs, instance: 'slow' }).getAccessToken(connection.id);
    await held.reached;
    const began = (await saved(connection.id)).refreshUntil!.getTime();
    const quick = tokensOf({ leaseMs, instance: 'quick' }).getAccessToken(connection.id);
    const lasts = async () => (await saved(connection.id)).refreshUntil!.getTime() > began + leaseMs;
    await until('the lease to be renewed after its first end', lasts);
    held.open();
    expect(await slow).toMatchObject({ version: 2 });
    expect(await quick).toEqual(await slow);
    expect(refreshes()).toBe(1);
    await expectStillConnected(connection.id);
  });

  it('a refresh lease keeps other processes from refreshing while it lasts', async () => {
    const connection = await newConnection();
    const held = latch();
    relay.before = held.pass;
    const calls = [tokensOf().getAccessToken(connection.id)];
    await held.reached;
    const record = await saved(connection.id);
    expect(record.refreshOwner).toMatch(/^this process /);
    expect(record.refreshUntil!.getTime() - Date.now()).toBeGreaterThan(30_000);
    for (let i = 0; i < 5; i++) calls.push(tokensOf({ instance: `other ${i}` }).getAccessToken(connection.id));
    expect(await store.connections.leaseRefresh(connection.id, 1, 'yet another', 1000)).toBeUndefined();
    held.open();
    expect(new Set((await Promise.all(calls)).map(({ version }) => version))).toEqual(new Set([2]));
    expect(refreshes()).toBe(1);
  });
});
