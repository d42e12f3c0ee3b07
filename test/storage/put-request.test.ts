import { once } from 'node:events';
import { Agent, createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, Socket } from 'node:net';
import { afterEach, expect, test, vi } from 'vitest';
import { type Put, putRequest } from '../../src/storage/put-request.ts';

afterEach(() => {
  vi.useRealTimers();
});

const put = (more: Pick<Put, 'agent' | 'port'>) =>
  putRequest({
    secure: false,
    hostname: '127.0.0.1',
    path: '/',
    headers: { 'content-length': '1' },
    body: Buffer.from('a'),
    bytes: 1,
    signal: undefined,
    ...more,
  });

test('a store that takes no connection is told', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  // As one whose packets nobody answers.
  const agent = new (class extends Agent {
    createConnection() {
      return Object.assign(new Socket(), { connecting: true });
    }
  })();
  const told = expect(put({ agent, port: 1 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  await vi.advanceTimersByTimeAsync(10_000);
  await told;
});

test('to wait for a connection that others have is no failure, however long it takes', async () => {
  const held: ServerResponse[] = [];
  const server = createServer((_, response) => held.push(response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  try {
    const first = put({ agent, port });
    await once(server, 'request');
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const second = put({ agent, port });
    await vi.advanceTimersByTimeAsync(60_000);
    const next = once(server, 'request');
    held[0]!.end('one');
    expect(await first).toMatchObject({ status: 200, text: 'one' });
    await next;
    held[1]!.end('two');
    expect(await second).toMatchObject({ status: 200, text: 'two' });
  } finally {
    agent.destroy();
    server.close();
  }
});
