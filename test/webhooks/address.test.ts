import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createWebhookSender } from '../../src/webhooks/sender.ts';

describe('the address of a webhook', () => {
  let server: Server;
  let asked = 0;
  let port: number;
  const ms = expect.any(Number);
  const unanswered = { status: null, ms };
  beforeAll(async () => {
    server = createServer((request, response) => {
      asked++;
      if (request.url === '/elsewhere') response.writeHead(307, { location: '/' }).end();
      else response.writeHead(204).end();
    }).listen(0, '::');
    await once(server, 'listening');
    port = (server.address() as AddressInfo).port;
  });
  afterAll(() => {
    server.close();
  });
  const send = async (url: string, allowPrivate: boolean) => {
    const sender = createWebhookSender({ allowPrivate });
    try {
      return await sender.send({ url, keys: [Buffer.alloc(32)], name: 'WEBHOOK_URL' }, { id: 'msg_1', body: '{}' });
    } finally {
      await sender.close();
    }
  };

  it.each(['127.0.0.1', 'localhost', '[::1]', '[::ffff:127.0.0.1]', '0.0.0.0', '2130706433', '0x7f.1'])(
    'a webhook endpoint on this machine is refused, however it is written: %s',
    async (host) => {
      asked = 0;
      expect(await send(`http://${host}:${port}/`, false)).toEqual({
        delivered: false,
        ...unanswered,
        reason: expect.stringContaining('is not a public address'),
      });
      expect(asked).toBe(0);
      expect(await send(`http://${host}:${port}/`, true)).toEqual({ delivered: true, status: 204, ms });
    },
  );

  it('a webhook endpoint where nothing listens is reported with the setting to correct', async () => {
    expect(await send('http://127.0.0.1:9/', true)).toEqual({
      delivered: false,
      ...unanswered,
      reason: expect.stringMatching(/^nothing listens at 127\.0\.0\.1:9 .*correct WEBHOOK_URL$/),
    });
  });

  it('a redirect of a webhook endpoint is not followed', async () => {
    asked = 0;
    expect(await send(`http://127.0.0.1:${port}/elsewhere`, true)).toEqual({
      delivered: false,
      status: 307,
      ms,
      reason: 'the endpoint answered 307',
      waitMs: undefined,
    });
    expect(asked).toBe(1);
  });
});
