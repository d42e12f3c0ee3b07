import { createHook } from 'node:async_hooks';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createSecureServer } from 'node:http2';
import { type AddressInfo, connect, createServer as createNetServer } from 'node:net';
import { createServer as createTlsServer, getCACertificates, setDefaultCACertificates } from 'node:tls';
import { request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createAgent, getText } from '../../src/source/http.ts';
import { newCertificates } from '../support/certificates.ts';

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

test('an answer leaves no timer behind, which would keep it in memory', async () => {
  const { signal } = new AbortController();
  await get('/', signal);
  const left = new Set<number>();
  const hook = createHook({
    init: (id, type) => void (type === 'Timeout' && left.add(id)),
    destroy: (id) => void left.delete(id),
  }).enable();
  for (let i = 0; i < 50; i++) expect((await get('/', signal)).text).toBe('{"ok":true}');
  // The end is reported on a later turn of the event loop.
  for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
  hook.disable();
  expect(left.size).toBeLessThan(10);
});

test('an abort ends the wait for an answer', async () => {
  const stop = new AbortController();
  const answer = get('/silent', stop.signal);
  setTimeout(() => stop.abort(new Error('enough')), 50);
  await expect(answer).rejects.toThrow('enough');
});

test('requests use HTTP/1.1, also to servers with HTTP/2', async () => {
  const { ca, cert, key, clear } = await newCertificates();
  const known = getCACertificates('default');
  setDefaultCACertificates([...known, await readFile(ca, 'utf8')]);
  const options = { cert: await readFile(cert), key: await readFile(key), allowHTTP1: true };
  const secure = createSecureServer(options, (request, response) => response.end(request.httpVersion));
  await new Promise<void>((resolve) => secure.listen(0, '127.0.0.1', resolve));
  const agent = createAgent({ connections: 1 });
  try {
    const url = `https://localhost:${(secure.address() as AddressInfo).port}/`;
    const { signal } = new AbortController();
    expect((await getText(url, { what: 'read it', headers: {}, dispatcher: agent, signal })).text).toBe('1.1');
  } finally {
    await agent.destroy();
    await new Promise((resolve) => secure.close(resolve));
    setDefaultCACertificates(known);
    await clear();
  }
});

test('a connection that breaks after a refusal fails only its own request', async () => {
  // Its certificate authority is unknown, and its first TLS record is followed by an invalid one.
  const { cert, key, clear } = await newCertificates();
  const secured = createTlsServer({ cert: await readFile(cert), key: await readFile(key) }).listen(0, '127.0.0.1');
  secured.on('tlsClientError', () => {});
  const record = Buffer.concat([Buffer.from([0x17, 3, 3, 0, 32]), Buffer.alloc(32, 7)]);
  const between = createNetServer((client) => {
    const server = connect((secured.address() as AddressInfo).port, '127.0.0.1');
    for (const socket of [client, server]) socket.on('error', () => {});
    client.pipe(server);
    client.on('close', () => server.destroy());
    server.once('data', (first) => client.write(Buffer.concat([first, record])));
  }).listen(0, '127.0.0.1');
  await Promise.all([once(secured, 'listening'), once(between, 'listening')]);
  const agent = createAgent({ connections: 1 });
  try {
    const url = `https://127.0.0.1:${(between.address() as AddressInfo).port}/`;
    const closed = once(between, 'connection').then(([client]) => once(client, 'close'));
    // The test runner fails on uncaught errors.
    await expect(request(url, { dispatcher: agent })).rejects.toThrow('unable to verify');
    await closed;
  } finally {
    await agent.destroy();
    for (const server of [between, secured]) await new Promise((resolve) => server.close(resolve));
    await clear();
  }
});
