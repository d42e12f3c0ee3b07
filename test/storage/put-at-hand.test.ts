import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { Agent, type Dispatcher } from 'undici';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { putAtHand } from '../../src/storage/put-at-hand.ts';
import { agentsTo } from '../../src/storage/s3-client.ts';

let server: ReturnType<typeof createServer>;
let answer: (request: IncomingMessage, response: ServerResponse) => unknown;
let origin: string;
const { atHand: dispatcher } = agentsTo({ connections: 1 });

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

const put = (pieces: string[], signal?: AbortSignal, by: Dispatcher = dispatcher) => {
  const body = pieces.map((piece) => Buffer.from(piece));
  const headers = { 'content-length': String(Buffer.concat(body).length), 'x-one': 'a' };
  return putAtHand({ dispatcher: by, origin, path: '/b/k?x=%2F', headers, body, signal });
};

test.each([
  ['none', []],
  ['one', ['abc']],
  ['an empty one', ['']],
  ['several', ['ab', '', 'c', 'défg']],
])('pieces arrive as one body: %s', async (_, pieces) => {
  let seen: Buffer | undefined;
  answer = async (request, response) => {
    seen = await buffer(request);
    const { method, url, headers } = request;
    response.setHeader('x-seen', `${method} ${url} ${headers['x-one']} ${headers['content-length']}`);
    response.end('thänks');
  };
  const whole = pieces.join('');
  const length = Buffer.byteLength(whole);
  expect(await put(pieces)).toMatchObject({
    status: 200,
    headers: { 'x-seen': `PUT /b/k?x=%2F a ${length}` },
    text: 'thänks',
  });
  expect(seen!.toString()).toBe(whole);
});

test('of an answer without end the beginning is kept', async () => {
  answer = (_, response) => response.writeHead(500).end('e'.repeat(2 ** 20));
  const { status, text } = await put(['a']);
  expect(status).toBe(500);
  expect(text).toMatch(/^e+$/);
  expect(text.length).toBeLessThan(2 ** 18);
});

test('one that is given up lets go of its line, and one that waits for a line never has one', async () => {
  const asked: ServerResponse[] = [];
  answer = (_, response) => asked.push(response);
  const [first, second] = [new AbortController(), new AbortController()];
  const under = put(['a'], first.signal);
  await once(server, 'request');
  const waiting = put(['b'], second.signal);
  second.abort(new Error('no more'));
  await expect(waiting).rejects.toThrow('no more');
  const closed = once(asked[0]!, 'close');
  first.abort(new Error('enough'));
  await expect(under).rejects.toThrow('enough');
  await closed;
  answer = async (request, response) => response.end((await buffer(request)).toString());
  expect(await put(['c'])).toMatchObject({ text: 'c' });
  expect(asked).toHaveLength(1);
  await expect(put(['d'], AbortSignal.abort(new Error('before')))).rejects.toThrow('before');
});

test.each([
  ['nothing', () => {}],
  ['no more than a head', (_: unknown, response: ServerResponse) => response.flushHeaders()],
])('a store that says %s has been silent', async (_, says) => {
  answer = says;
  const brief = new Agent({ headersTimeout: 100, bodyTimeout: 100 });
  await expect(put(['a'], undefined, brief)).rejects.toMatchObject({ name: 'TimeoutError' });
  await brief.close();
});

test('a store that breaks off is told', async () => {
  answer = (request) => request.socket.destroy();
  await expect(put(['a'])).rejects.toThrow();
  await new Promise((resolve) => server.close(resolve));
  await expect(put(['a'])).rejects.toMatchObject({ code: 'ECONNREFUSED' });
});
