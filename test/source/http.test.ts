import { createHook } from 'node:async_hooks';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createAgent, getText } from '../../src/source/http.ts';

const server = createServer((request, response) => {
  if (request.url === '/silent') return;
  response.setHeader('content-type', 'application/json').end('{"ok":true}');
});
let origin: string;
const dispatcher = createAgent({ connections: 4 });
const get = (path: string, signal: AbortSignal) =>
  getText(`${origin}${path}`, { what: 'read it', headers: {}, dispatcher, signal });

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  await dispatcher.destroy();
  server.close();
});

test('an answer leaves no timer behind, which would hold all that has to do with it', async () => {
  const { signal } = new AbortController();
  await get('/', signal);
  const left = new Set<number>();
  const hook = createHook({
    init: (id, type) => void (type === 'Timeout' && left.add(id)),
    destroy: (id) => void left.delete(id),
  }).enable();
  for (let i = 0; i < 50; i++) expect((await get('/', signal)).text).toBe('{"ok":true}');
  // What is ended is told of on the next turns of the event loop.
  for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
  hook.disable();
  expect(left.size).toBeLessThan(10);
});

test('one that does not come is not waited for any more when the caller stops', async () => {
  const stop = new AbortController();
  const answer = get('/silent', stop.signal);
  setTimeout(() => stop.abort(new Error('enough')), 50);
  await expect(answer).rejects.toThrow('enough');
});
