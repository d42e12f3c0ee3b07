import { randomBytes } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { databaseAsText } from '../support/everything.ts';
import { spawnMirror, startMirror } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { endpointsOf } from './endpoints.ts';
import { startReceiver } from './receiver.ts';

let scene: Scene;
const first = randomBytes(32).toString('base64');
const { add, api, arrived, close, mirrored, query, receivers, remove, saved, secrets, webhook } = endpointsOf(
  () => scene,
);
beforeAll(async () => {
  scene = await newScene({ environment: { ENCRYPTION_KEYS: first, WEBHOOK_ALLOW_PRIVATE: 'true' } });
});
afterAll(close);

describe('webhook endpoints', () => {
  test('an endpoint that is dead, slow or gone delays no other, and only the gone one gets nothing more', {
    tags: 'slow',
  }, async () => {
    const kinds = ['asset.mirrored'];
    const [fine, dead, slow, gone] = [
      await add({ kinds }),
      await add({ kinds }),
      await add({ kinds }),
      await add({ kinds }),
    ];
    await dead.receiver.close();
    const hanging: ServerResponse[] = [];
    let most = 0;
    slow.receiver.answer((response) => {
      hanging.push(response);
      most = Math.max(most, hanging.filter(({ destroyed }) => !destroyed).length);
    });
    gone.receiver.answer((response) => response.writeHead(410).end());
    await mirrored();
    await arrived(fine, 'asset.mirrored');
    await until('the gone one to be gone', async () => (await webhook(gone.id)).state === 'gone');
    // Together, because the slow one is given up after some seconds each time.
    for (let n = 2; n <= 6; n++) await scene.upload({ content: { text: `together ${n}` } });
    await scene.resync({ mode: 'incremental' });
    await arrived(fine, 'asset.mirrored', 6);
    // While each of the others has not accepted anything.
    await until('the slow one to get as many as it may at once', () => most === 4);
    expect((await webhook(fine.id)).state).toBe('working');
    await until('the dead one to fail', async () => (await webhook(dead.id)).state === 'failing');
    expect(
      (await query(`SELECT data FROM events WHERE kind = 'webhook.gone'`)).map(({ data }) => data.endpointId),
    ).toEqual([gone.id]);
    expect(gone.receiver.received.length).toBe(1);
    gone.receiver.answer((response) => response.writeHead(204).end());
    await mirrored();
    await arrived(fine, 'asset.mirrored', 7);
    expect(gone.receiver.received.length).toBe(1);

    // What came meanwhile arrives when an operator enables it.
    await query(`UPDATE webhook_deliveries SET next_at = now() WHERE endpoint_id = $1`, [gone.id]);
    expect(await api('PATCH', `/webhooks/${gone.id}`, { enabled: true })).toMatchObject({
      enabled: true,
      secret: null,
    });
    await until('all of them', () => new Set(gone.receiver.received.map(({ id }) => id)).size === 7);
    for (const response of hanging) response.writeHead(204).end();
    slow.receiver.answer((response) => response.writeHead(204).end());
    await arrived(slow, 'asset.mirrored', 7);
    for (const endpoint of [fine, slow, gone]) endpoint.refuse();

    // A disabled endpoint gets nothing of what happens meanwhile.
    await api('PATCH', `/webhooks/${fine.id}`, { enabled: false });
    await mirrored();
    await arrived(slow, 'asset.mirrored', 8);
    expect((await webhook(fine.id)).waiting).toBe(0);
    await remove(fine, dead, slow, gone);
  });

  test('the answer 410 of an earlier address does not end an endpoint that has another one now', async () => {
    const kinds = ['asset.mirrored'];
    const [old, other] = [await add({ kinds }), await add({ kinds })];
    const hanging: ServerResponse[] = [];
    old.receiver.answer((response) => hanging.push(response));
    await mirrored();
    await until('a message to the earlier address', () => hanging.length > 0);
    await api('PATCH', `/webhooks/${old.id}`, { url: other.receiver.url });
    for (const response of hanging) response.writeHead(410).end();
    const logged = () => scene.mirror.lines.find(({ endpointId }) => endpointId === old.id);
    expect(await until('the answer to be logged', logged)).toMatchObject({ event: 'webhook.retry_scheduled' });
    await remove(old, other);
  });

  test('a new secret is shown once, and the old one signs for a day, too', async () => {
    const endpoint = await add({ kinds: ['asset.mirrored'] });
    const { secret, oldSecretUntil } = await api('PATCH', `/webhooks/${endpoint.id}`, { rotateSecret: true });
    expect(secret).toMatch(/^whsec_[\w+/]{43}=$/);
    expect(Date.parse(oldSecretUntil) - Date.now()).toBeGreaterThan(23 * 3_600_000);
    secrets.push(secret);
    // The receiver verifies each message with both.
    endpoint.own.push(secret);
    expect(await api('POST', `/webhooks/${endpoint.id}/test`)).toEqual({ delivered: true, reason: null });
    await mirrored();
    await arrived(endpoint, 'asset.mirrored');
    endpoint.refuse();
    expect(JSON.stringify(await api('GET', '/webhooks'))).not.toContain('whsec_');
    await remove(endpoint);
  });

  test('the log has each message with its last attempt, and sends messages again with their ids', {
    tags: 'slow',
  }, async () => {
    const endpoint = await add({ kinds: ['asset.mirrored', 'connection.disconnected'] });
    const { receiver } = endpoint;
    const log = (state = '') => api('GET', `/webhooks/${endpoint.id}/deliveries?limit=2${state && `&state=${state}`}`);
    const redeliver = (body: object) => api('POST', `/webhooks/${endpoint.id}/redeliver`, body);
    const ids = [await mirrored(), await mirrored(), await mirrored()];
    await arrived(endpoint, 'asset.mirrored', 3);
    await saved(endpoint);
    const { deliveries, nextCursor } = await log();
    expect(deliveries).toMatchObject([{ assetId: ids[2] }, { assetId: ids[1] }]);
    // Messages arrive in any order.
    const sent = receiver.received.find((message) => JSON.stringify(message).includes(ids[0]!));
    const rest = await api('GET', `/webhooks/${endpoint.id}/deliveries?limit=2&cursor=${nextCursor}`);
    expect(rest).toMatchObject({ nextCursor: null, deliveries: [{ assetId: ids[0] }] });
    expect(rest.deliveries[0]).toEqual({
      id: sent!.id,
      state: 'delivered',
      kind: 'asset.mirrored',
      at: sent!.timestamp,
      connectionId: scene.connectionId,
      assetId: ids[0],
      attempts: 1,
      attemptedAt: expect.any(String),
      status: 204,
      error: null,
      ms: expect.any(Number),
      nextAt: null,
    });

    expect(await redeliver({ messageId: sent!.id })).toEqual({ redelivered: 1 });
    const again = (await arrived(endpoint, 'asset.mirrored', 4))[3]!;
    expect(again).toMatchObject({ id: sent!.id, raw: sent!.raw });
    expect(again.sentAt).toBeGreaterThanOrEqual(sent!.sentAt);
    await expect(redeliver({ messageId: 'msg_none' })).rejects.toThrow(/404.*message_not_found/);

    // One that is given up, and one that waits after a failed attempt.
    receiver.answer((response) => response.writeHead(500).end());
    const began = new Date().toISOString();
    const failed = [await mirrored(), await mirrored()];
    await until('both to fail', async () => {
      const { deliveries: last } = await log('waiting');
      return last.length === 2 && last.every(({ status }: { status: number }) => status === 500);
    });
    await query(`UPDATE webhook_deliveries SET next_at = now() + interval '1 hour' WHERE asset_id = $1`, [failed[1]]);
    await query(`UPDATE webhook_deliveries SET waiting_since = now() - interval '4 days' WHERE asset_id = $1`, [
      failed[0],
    ]);
    await until('it to be given up', async () => (await log('failed')).deliveries.length === 1);
    expect((await log('failed')).deliveries[0]).toMatchObject({
      assetId: failed[0],
      status: 500,
      error: 'the endpoint answered 500',
      nextAt: null,
    });
    receiver.answer((response) => response.writeHead(204).end());
    expect(await redeliver({ failedSince: began })).toEqual({ redelivered: 2 });
    await until('all to be delivered', async () => {
      const { deliveries: last } = await log('delivered');
      return last.every(({ assetId }: { assetId: string }) => failed.includes(assetId));
    });
    expect(await log('failed')).toEqual({ deliveries: [], nextCursor: null });
    await api('PATCH', `/webhooks/${endpoint.id}`, { enabled: false });
    await expect(redeliver({ messageId: sent!.id })).rejects.toThrow(/409.*webhook_disabled/);
    endpoint.refuse();
    await remove(endpoint);
  });

  test('the log keeps the newest messages, and one with a reconnect link does not have it', async () => {
    const endpoint = await add({ kinds: ['connection.disconnected'] });
    await query(
      `INSERT INTO events (kind, connection_id, data) VALUES ('connection.disconnected', $1, '{"reason": "test"}')`,
      [scene.connectionId],
    );
    const [message] = await arrived(endpoint, 'connection.disconnected');
    await saved(endpoint);
    const link = new URL(String(message!.data.reconnectUrl)).searchParams.get('link')!;
    expect(JSON.stringify(await api('GET', `/webhooks/${endpoint.id}/deliveries`))).not.toContain(link);
    for (const [table, text] of await databaseAsText(scene.ground.environment.DATABASE_URL!)) {
      expect(text, table).not.toContain(link);
    }
    await query(
      `INSERT INTO webhook_deliveries (id, endpoint_id, state, kind, at, data, waiting_since, next_at)
       SELECT 'old ' || i, $1, 'delivered', 'asset.mirrored', now() - i * interval '1 minute', '{}', now(), now()
       FROM generate_series(1, 1500) i`,
      [endpoint.id],
    );
    await scene.mirror.store.webhooks.trim();
    const kept = await query('SELECT id FROM webhook_deliveries WHERE endpoint_id = $1 ORDER BY at', [endpoint.id]);
    expect([kept.length, kept[0].id, kept.at(-1).id]).toEqual([1000, 'old 999', message!.id]);
    await remove(endpoint);
  });

  test('keys rotate encrypts the secrets again, and messages are signed without the old key', {
    tags: 'slow',
  }, async () => {
    const endpoint = await add({ kinds: ['asset.mirrored'] });
    const next = randomBytes(32).toString('base64');
    await scene.restart({ ENCRYPTION_KEYS: `${next},${first}` });
    expect(await api('POST', '/keys/rotate')).toMatchObject({ rotated: 2, unreadable: [] });
    await scene.restart({ ENCRYPTION_KEYS: next });
    await mirrored();
    await arrived(endpoint, 'asset.mirrored');
    endpoint.refuse();
    await scene.restart({ ENCRYPTION_KEYS: first });
    await expect(api('PATCH', `/webhooks/${endpoint.id}`, { enabled: true })).rejects.toThrow(
      /409.*webhook_unreadable/,
    );
    await scene.restart({ ENCRYPTION_KEYS: `${first},${next}` });
    await remove(endpoint);
  });

  test('the endpoint in the environment is listed with its state, and the API does not change it', {
    tags: 'slow',
  }, async () => {
    const secret = `whsec_${randomBytes(32).toString('base64')}`;
    const receiver = await startReceiver([secret]);
    receivers.push(receiver);
    await scene.restart({ WEBHOOK_URL: receiver.url, WEBHOOK_SECRET: secret });
    const environment = await until('it to be listed', () => webhook('environment'));
    const url = `${new URL(receiver.url).origin}/…`;
    expect(environment).toMatchObject({ url, fromEnvironment: true, state: 'working', oldSecretUntil: null });
    for (const [method, body] of [['PATCH', { enabled: false }], ['DELETE']] as const) {
      await expect(api(method, '/webhooks/environment', body)).rejects.toThrow(/409.*webhook_from_environment/);
    }
    for (const path of ['/webhooks/test', '/webhooks/environment/test']) {
      expect(await api('POST', path)).toEqual({ delivered: true, reason: null });
    }
    expect(receiver.refused).toEqual([]);
    // During an update, some processes may not have it yet.
    await scene.restart({ WEBHOOK_URL: '' });
    expect(await webhook('environment')).toMatchObject({ url });
    const unseenSince = async () =>
      (await query(`SELECT unseen_since FROM webhook_endpoints WHERE id = 'environment'`))[0].unseen_since;
    await until('the process to notice', async () => (await unseenSince()) !== null);
    await scene.restart({ WEBHOOK_URL: receiver.url });
    await until('the process to notice', async () => (await unseenSince()) === null);
    await scene.restart({ WEBHOOK_URL: '' });
    await until('the process to notice', async () => (await unseenSince()) !== null);
    await query(`UPDATE webhook_endpoints SET unseen_since = now() - interval '11 minutes' WHERE id = 'environment'`);
    await scene.restart({ WEBHOOK_URL: '' });
    await until('it to be removed', async () => !(await webhook('environment')));
  });

  test('the secrets and addresses of endpoints are nowhere in the database, the log or the audit log', async () => {
    const endpoint = await add();
    await api('PATCH', `/webhooks/${endpoint.id}`, { url: endpoint.receiver.url });
    const [entry] = await query(
      `SELECT data FROM events WHERE kind = 'operator.changeWebhook' ORDER BY id DESC LIMIT 1`,
    );
    expect(entry.data).toMatchObject({ targetId: endpoint.id, request: { url: expect.stringMatching(/\/…$/) } });
    expect(secrets.length).toBeGreaterThan(0);
    const log = scene.ground.logs.flatMap((lines) => lines()).join('\n');
    const texts = [...(await databaseAsText(scene.ground.environment.DATABASE_URL!)), ['the log', log] as const];
    const found = texts.filter(([, text]) => [...secrets, 'the-key-of-the-address'].some((it) => text.includes(it)));
    expect(found.map(([name]) => name)).toEqual([]);
    await remove(endpoint);
  });
});

test('a message is sent again by another process if its own is killed before it saved the answer', {
  tags: 'slow',
}, async () => {
  const endpoint = await add({ kinds: ['asset.mirrored'] });
  await scene.mirror.stop();
  const { ground, library } = scene;
  const web = await startMirror(ground, library, 'web');
  const killed = await spawnMirror(ground, library, 'worker');
  try {
    const hanging: ServerResponse[] = [];
    endpoint.receiver.answer((response) => hanging.push(response));
    await scene.upload({ content: { text: 'the last one' } });
    await web.api('POST', `/connections/${scene.connectionId}/resync`, { mode: 'incremental' });
    const [message] = await arrived(endpoint, 'asset.mirrored');
    await killed.kill('SIGKILL');
    endpoint.receiver.answer((response) => response.writeHead(204).end());
    const worker = await startMirror(ground, library, 'worker');
    // Its lease ends.
    await query('UPDATE webhook_deliveries SET next_at = now()');
    const [, again] = await arrived(endpoint, 'asset.mirrored', 2);
    expect(again).toMatchObject({ id: message!.id, raw: message!.raw });
    await until('nothing to wait', async () => (await webhook(endpoint.id)).waiting === 0);
    endpoint.refuse();
    await worker.stop();
  } finally {
    await killed.kill('SIGKILL');
    await web.stop();
  }
});
