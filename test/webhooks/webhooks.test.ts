// @module-tag slow
import { randomBytes } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { waitAfter } from '../../src/webhooks/deliver.ts';
import { newBrowser } from '../support/browser.ts';
import { databaseAsText } from '../support/everything.ts';
import { startMirror } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { startReceiver } from './receiver.ts';

const secrets = [`whsec_${randomBytes(32).toString('base64')}`, `whsec_${randomBytes(24).toString('base64')}`];

describe('a webhook endpoint', () => {
  let scene: Scene;
  let other: Awaited<ReturnType<typeof startMirror>>;
  let receiver: Awaited<ReturnType<typeof startReceiver>>;
  let database: pg.Pool;
  const kinds = ['connection.disconnected', 'connection.recovered', 'sync.failed', 'asset.failed', 'asset.mirrored'];
  beforeAll(async () => {
    receiver = await startReceiver(secrets);
    scene = await newScene({
      environment: {
        WEBHOOK_URL: receiver.url,
        WEBHOOK_SECRET: secrets.join(','),
        WEBHOOK_EVENTS: kinds.join(','),
        WEBHOOK_ALLOW_PRIVATE: 'true',
      },
    });
    // Two processes deliver, and nothing is delivered twice.
    other = await startMirror(scene.ground, scene.library, 'worker');
    database = new pg.Pool({ connectionString: scene.ground.environment.DATABASE_URL, max: 2 });
  });
  afterAll(async () => {
    await database?.end();
    await other?.stop();
    await scene?.close();
    await receiver?.close();
  });
  const query = async (text: string, values: unknown[] = []) => (await database.query(text, values)).rows;
  const received = (type: string, count = 1) =>
    until(`${count} of ${type}`, () => receiver.of(type).length >= count && receiver.of(type)[count - 1]!);
  const waiting = () => query("SELECT FROM webhook_deliveries WHERE state = 'waiting'");
  const eachSent = () =>
    until('each event to be sent at least once', async () => {
      const rows = await query('SELECT FROM events WHERE kind = ANY($1)', [kinds]);
      return new Set(receiver.received.map(({ id }) => id)).size === rows.length;
    });
  const settled = (left = 0) => until(`${left} to be waiting`, async () => (await waiting()).length === left);

  test('a webhook endpoint gets each event once, with a signature that it can verify', async () => {
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { tags: { client: 'acme' } });
    const ids = [await scene.upload({ content: { text: 'one' } }), await scene.upload({ content: { text: 'two' } })];
    const broken = await scene.upload();
    await scene.admin.addFault({ endpoint: 'asset', assetId: broken, status: 200, body: { asset: 'none' } });
    await scene.resync();
    await received('asset.mirrored', 2);
    const failed = await received('asset.failed');
    expect(
      receiver
        .of('asset.mirrored')
        .map(({ data }) => data.assetId)
        .sort(),
    ).toEqual([...ids].sort());
    const [user] = scene.library.users;
    const who = {
      connectionId: scene.connectionId,
      user: { id: user!.id, name: user!.name, email: user!.email },
      tags: { client: 'acme' },
    };
    expect(receiver.of('asset.mirrored')[0]).toMatchObject({
      id: expect.stringMatching(/^msg_\w{32}$/),
      timestamp: expect.stringMatching(/^\d{4}-.*Z$/),
      data: { ...who, companyId: 'acme', name: 'file.bin', key: expect.stringContaining('/file.bin'), bytes: 3 },
    });
    expect(failed.data).toMatchObject({
      ...who,
      assetId: broken,
      reason: expect.stringContaining('breaks the API schema'),
    });
    await settled();
    expect(receiver.refused).toEqual([]);
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(receiver.received.length);
  });

  test('a webhook endpoint gets only the first failure of several failed syncs in a row', async () => {
    await scene.admin.addFault({ endpoint: 'me', status: 400 });
    const failedRuns = async (count: number) => {
      await scene.resync({ mode: 'incremental' });
      await until('the run to fail', async () => {
        const rows = await query("SELECT FROM syncs WHERE status = 'failed'");
        return rows.length === count;
      });
    };
    await failedRuns(1);
    await failedRuns(2);
    await scene.admin.clearFaults();
    await scene.resync({ mode: 'incremental' });
    await scene.mirror.quiet();
    await scene.admin.addFault({ endpoint: 'me', status: 400 });
    await failedRuns(3);
    await scene.admin.clearFaults();
    await received('sync.failed', 2);
    await settled();
    expect(receiver.of('sync.failed')).toHaveLength(2);
    expect(receiver.of('sync.failed')[0]!.data).toMatchObject({
      connectionId: scene.connectionId,
      syncId: expect.any(String),
      mode: 'incremental',
      reason: expect.stringContaining('400'),
    });
  });

  test('a webhook endpoint gets the end of a connection with a reconnect link that is stored nowhere', async () => {
    await scene.admin.expireTokens();
    await scene.admin.endConnections();
    await scene.resync({ mode: 'incremental' });
    const { data, raw } = await received('connection.disconnected');
    expect(data).toMatchObject({
      connectionId: scene.connectionId,
      user: { email: scene.library.users[0]!.email },
      reason: expect.stringContaining('connect again'),
      reconnectUrlExpiresAt: expect.any(String),
    });
    expect(raw).not.toMatch(/svc[a-z]_/);
    const url = String(data.reconnectUrl);
    expect((await newBrowser().visit(url)).status).toBe(200);
    expect((await received('connection.recovered')).data).toMatchObject({ connectionId: scene.connectionId });
    expect((await scene.mirror.api('GET', `/connections/${scene.connectionId}`)).status).toBe('active');

    const link = new URL(url).searchParams.get('link')!;
    for (const [table, text] of await databaseAsText(scene.ground.environment.DATABASE_URL!)) {
      expect(text, table).not.toContain(link);
    }
    const log = JSON.stringify([scene.mirror.lines, other.lines]);
    for (const secret of [link, 'the-key-of-the-address', ...secrets]) expect(log).not.toContain(secret);
  });

  test('an event is sent again until the endpoint accepts it, at the time it asked for; others are not held up', async () => {
    await settled();
    const before = receiver.received.length;
    const hanging = new Map<string, ServerResponse>();
    receiver.answer((response, { id }) => {
      // First an error, then a pause, then no answer, which times out late.
      const tries = receiver.received.filter((message) => message.id === id).length;
      if (tries === 1) response.writeHead(503, { 'retry-after': '7' }).end('down');
      else hanging.set(id, response);
    });
    const ids = [];
    for (let n = 0; n < 4; n++) ids.push(await scene.upload({ content: { text: `while down ${n}` } }));
    await scene.resync();
    for (const id of ids) await scene.mirror.assetIn(id, 'mirrored');
    const firsts = await until('a delivery of each', () => {
      const first = new Map(
        receiver.received
          .slice(before)
          .toReversed()
          .map((message) => [message.id, message]),
      );
      return first.size >= ids.length && [...first.values()];
    });
    await until('the answer to be written down', async () => {
      const rows = await query('SELECT attempts, error FROM webhook_deliveries');
      return rows.some(({ attempts, error }) => attempts >= 1 && error === 'the endpoint answered 503');
    });
    await until('each to be delivered again', () => firsts.every(({ id }) => hanging.has(id)));
    for (const { id, at } of firsts) {
      const again = receiver.received.filter((message) => message.id === id);
      expect(again.length).toBe(2);
      expect(again[1]!.at - at).toBeGreaterThanOrEqual(7000);
    }
    // While all of these hang, the library is mirrored as usual.
    const last = await scene.upload({ content: { text: 'while they hang' } });
    await scene.resync();
    await scene.mirror.assetIn(last, 'mirrored');
    for (const response of hanging.values()) response.writeHead(500).end();
  });

  test('events that are too old are not sent, and logged as given up', async () => {
    // An event that came while others hung is sent, too. If it were given up before that, it would never be received.
    await eachSent();
    expect((await waiting()).length).toBeGreaterThanOrEqual(4);
    await query("UPDATE webhook_deliveries SET waiting_since = now() - interval '4 days'");
    await until('them to be given up', async () => {
      const rows = await query("SELECT data FROM events WHERE kind = 'webhook.given_up'");
      return rows.reduce((sum, { data }) => sum + data.count, 0) >= 4;
    });
  });

  test('an endpoint that answers 410 gets nothing until the next start', async () => {
    receiver.answer((response) => response.writeHead(200).end());
    await eachSent();
    await settled();
    await other.stop();
    receiver.answer((response) => response.writeHead(410).end());
    await query("INSERT INTO events (kind, connection_id) VALUES ('connection.recovered', $1)", [scene.connectionId]);
    await until(
      'that to be known',
      async () => (await query("SELECT FROM events WHERE kind = 'webhook.gone'")).length === 1,
    );
    const asked = receiver.received.length;
    await query("INSERT INTO events (kind, connection_id) VALUES ('connection.recovered', $1)", [scene.connectionId]);
    await until('it to be kept', async () => (await waiting()).length === 2);
    await query('UPDATE webhook_deliveries SET next_at = now()');
    receiver.answer((response) => response.writeHead(200).end());
    // A round gives up old messages first, and then sends others. So when the second message is given up, one round has ended.
    for (const kind of ['sync.failed', 'asset.failed']) {
      await query('INSERT INTO events (kind, connection_id) VALUES ($1, $2)', [kind, scene.connectionId]);
      await until('it to be kept, too', async () => (await waiting()).length === 3);
      await query("UPDATE webhook_deliveries SET waiting_since = now() - interval '4 days' WHERE kind = $1", [kind]);
      await settled(2);
    }
    expect(receiver.received.length).toBe(asked);
    await scene.restart();
    await settled();
    const since = receiver.received.slice(asked);
    expect(since.map(({ type }) => type)).toEqual(['connection.recovered', 'connection.recovered']);
  });

  test('a webhook endpoint gets a signed test message at once, and the operator gets its result', async () => {
    const send = () => scene.mirror.api('POST', '/webhooks/test');
    expect(await send()).toEqual({ delivered: true, reason: null });
    expect(receiver.of('webhook.test')).toMatchObject([{ data: {} }]);
    receiver.answer((response) => response.writeHead(500).end());
    expect(await send()).toEqual({ delivered: false, reason: 'the endpoint answered 500' });
    receiver.answer((response) => response.writeHead(204).end());
    expect(receiver.refused).toEqual([]);
  });
});

test('the waits between attempts of a webhook grow up to six hours', () => {
  for (const [attempts, least] of [
    [1, 5000],
    [2, 20_000],
    [5, 1_280_000],
    [20, 6 * 3_600_000],
  ] as const) {
    expect(waitAfter(attempts)).toBeGreaterThanOrEqual(least);
    expect(waitAfter(attempts)).toBeLessThanOrEqual(least * 1.25);
  }
});
