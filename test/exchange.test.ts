import { getEventListeners, once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { Agent } from 'undici';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { exchange } from '../src/exchange.ts';
import { until } from './support/until.ts';

let server: ReturnType<typeof createServer>;
let answer: (request: IncomingMessage, response: ServerResponse) => unknown;
let origin: string;
const dispatcher = new Agent({ connections: 1 });

beforeEach(async () => {
  server = createServer((request, response) => answer(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const mostSaid = 100;
const put = (text: string, signal?: AbortSignal, more: { timeoutMs?: number } = {}) => {
  const body = Buffer.from(text);
  const headers = { 'content-length': String(body.length), 'x-one': 'a' };
  const limit = (status: number) => (status === 500 ? mostSaid : 10 * mostSaid);
  return exchange({ dispatcher, method: 'PUT', origin, path: '/b/../k?x=%2F', headers, body, limit, signal, ...more });
};

test.each(['', 'défg', 'long '.repeat(10_000)])('bytes arrive as they are', async (text) => {
  let seen: Buffer | undefined;
  answer = async (request, response) => {
    seen = await buffer(request);
    const { method, url, headers } = request;
    response.setHeader('x-seen', `${method} ${url} ${headers['x-one']} ${headers['content-length']}`);
    response.end('thänks');
  };
  const length = Buffer.byteLength(text);
  expect(await put(text)).toMatchObject({
    status: 200,
    headers: { 'x-seen': `PUT /b/../k?x=%2F a ${length}` },
    text: 'thänks',
  });
  expect(seen!.toString()).toBe(text);
});

test('of a header that comes twice the first counts', async () => {
  answer = (_, response) => response.setHeaders(new Map([['etag', ['"one"', '"two"']]])).end();
  expect(await put('a')).toMatchObject({ headers: { etag: '"one"', connection: 'keep-alive' } });
});

test('so much of an answer is kept as its status is worth, and no line is held for more', async () => {
  for (const [status, most] of [
    [200, 10 * mostSaid],
    [500, mostSaid],
  ] as const) {
    answer = (_, response) => response.writeHead(status).end('e'.repeat(most));
    expect(await put('a')).toMatchObject({ status, text: 'e'.repeat(most), cut: false });
    // This one has no end.
    const closed = new Promise((resolve) => {
      answer = (_, response) =>
        response
          .writeHead(status)
          .on('close', resolve)
          .write('e'.repeat(most + 1));
    });
    expect(await put('a')).toMatchObject({ status, text: 'e'.repeat(most), cut: true });
    await closed;
  }
});

test('one that does not come in time is given up', async () => {
  answer = () => {};
  await expect(put('a', undefined, { timeoutMs: 50 })).rejects.toMatchObject({ name: 'TimeoutError' });
  answer = (_, response) => response.writeHead(200).write('slowly');
  await expect(put('a', undefined, { timeoutMs: 50 })).rejects.toMatchObject({ name: 'TimeoutError' });
});

test('of a refusal the status counts, whatever becomes of its words; of a success only the whole', async () => {
  const refusal = { status: 429, headers: { 'retry-after': '7' }, text: 'too', cut: true };
  answer = (_, response) => response.writeHead(429, { 'retry-after': '7' }).write('too');
  expect(await put('a', undefined, { timeoutMs: 100 })).toMatchObject(refusal);
  const breakOff = (status: number) => (request: IncomingMessage, response: ServerResponse) =>
    response.writeHead(status, { 'retry-after': '7' }).write('too', () => request.socket.destroySoon());
  answer = breakOff(429);
  expect(await put('a')).toMatchObject(refusal);
  answer = breakOff(200);
  await expect(put('a')).rejects.toThrow();
});

test('one that is given up lets go of its line, and one that waits for a line never has one', async () => {
  const asked: string[] = [];
  let line: ServerResponse | undefined;
  answer = async (request, response) => {
    const said = (await buffer(request)).toString();
    asked.push(said);
    if (said === 'a') line = response;
    else response.end(said);
  };
  const [first, second] = [new AbortController(), new AbortController()];
  const under = put('a', first.signal);
  await until('the first to be asked', () => line);
  const waiting = put('b', second.signal);
  second.abort(new Error('no more'));
  await expect(waiting).rejects.toThrow('no more');
  const closed = once(line!, 'close');
  first.abort(new Error('enough'));
  await expect(under).rejects.toThrow('enough');
  await closed;
  // On the one connection that there may be it comes behind whatever was to be sent before.
  expect(await put('c')).toMatchObject({ text: 'c' });
  expect(asked).toEqual(['a', 'c']);
  await expect(put('d', AbortSignal.abort(new Error('before')))).rejects.toThrow('before');
});

test('nothing of one that has ended stays with its signal', async () => {
  const { signal } = new AbortController();
  answer = async (request, response) => response.end(await buffer(request));
  await put('a', signal);
  answer = (request) => request.socket.destroy();
  await expect(put('a', signal)).rejects.toThrow();
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});

test('a store that breaks off is told', async () => {
  answer = (request) => request.socket.destroy();
  await expect(put('a')).rejects.toThrow();
  await new Promise((resolve) => server.close(resolve));
  await expect(put('a')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
});
