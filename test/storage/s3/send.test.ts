import { once } from 'node:events';
import { Agent, createServer, type ServerResponse } from 'node:http';
import { Agent as SecureAgent } from 'node:https';
import { type AddressInfo, Socket } from 'node:net';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { RetryLater } from '../../../src/floor/errors.ts';
import { metered } from '../../../src/storage/meter.ts';
import { agentsTo, connect, locate } from '../../../src/storage/s3/client.ts';
import { createSender } from '../../../src/storage/s3/send.ts';
import { newProxy } from '../../support/proxy.ts';
import { until } from '../../support/until.ts';
import { bytesOf, collected, crc32Of, KiB, MiB, streaming } from '../bodies.ts';
import { newBucket, openBucket } from '../grounds.ts';
import { newLine } from '../line.ts';

/** Sends two bytes to a server of the test through this agent, which may take `connectMs` to connect. */
function put(agent: Agent, port: number, connectMs: number) {
  const agents = { http: agent, https: new SecureAgent(), connectMs };
  const options = { bucket: 'b', endpoint: `http://127.0.0.1:${port}`, region: 'us-east-1', forcePathStyle: true };
  const client = connect(options, agents);
  client.config.credentials = async () => ({ accessKeyId: 'a', secretAccessKey: 'b' });
  const body = metered(streaming(Buffer.from('ab')), { expected: 2 });
  return createSender(client, agents, options)({ target: { Bucket: 'b', Key: 'k' }, body, bytes: 2 });
}

test('a connection that is not established in time is an error', async () => {
  // Like a host that answers no packets.
  const agent = new (class extends Agent {
    createConnection() {
      return Object.assign(new Socket(), { connecting: true });
    }
  })();
  await expect(put(agent, 1, 50)).rejects.toMatchObject({ name: 'ETIMEDOUT' });
});

test('a request may wait for a free connection for any time', { tags: 'slow' }, async () => {
  const held: ServerResponse[] = [];
  const server = createServer((_, response) => held.push(response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  try {
    const connectMs = 2000;
    const first = put(agent, port, connectMs);
    await until('the first request is there', () => held.length === 1);
    const second = put(agent, port, connectMs);
    await until('the second request waits', () => Object.keys(agent.requests).length > 0);
    const began = performance.now();
    await until('it has waited longer than a connection may take', () => performance.now() - began > connectMs + 200);
    held[0]!.setHeader('etag', '"one"').end();
    expect(await first).toMatchObject({ etag: '"one"' });
    await until('the second request is there', () => held.length === 2);
    held[1]!.setHeader('etag', '"two"').end();
    expect(await second).toMatchObject({ etag: '"two"' });
  } finally {
    agent.destroy();
    server.close();
  }
});

test.each([
  ['http://127.0.0.1:9000', true, 'films', 'http://127.0.0.1:9000/films/'],
  ['http://[::1]:9000', false, 'films', 'http://[::1]:9000/films/'],
  ['https://s3.example.com', false, 'films', 'https://films.s3.example.com/'],
  ['https://s3.example.com', false, 'my.films', 'https://s3.example.com/my.films/'],
  ['https://s3.example.com/a%20path/', true, 'films', 'https://s3.example.com/a%20path/films/'],
  ['https://s3.example.com/path', false, 'films', 'https://films.s3.example.com/path/'],
  [undefined, false, 'films', 'https://films.s3.eu-west-1.amazonaws.com/'],
  [undefined, false, 'my.films', 'https://s3.eu-west-1.amazonaws.com/my.films/'],
])(
  'bodies go where the SDK sends requests: endpoint %s, path style %s, bucket %s',
  async (endpoint, forcePathStyle, bucket, url) => {
    const credentials = async () => ({ accessKeyId: 'a', secretAccessKey: 'b' });
    const location = await locate({ endpoint, forcePathStyle, region: 'eu-west-1' }, bucket, credentials);
    expect({ ...location, url: location.url.href }).toEqual({ url, region: 'eu-west-1' });
  },
);

test('a directory bucket of Amazon is refused with a reason', async () => {
  const credentials = async () => ({ accessKeyId: 'a', secretAccessKey: 'b' });
  const located = locate({ forcePathStyle: false, region: 'us-east-1' }, 'films--use1-az4--x-s3', credentials);
  await expect(located).rejects.toThrow('the bucket films--use1-az4--x-s3 needs sessions, which are not supported');
});

const servers = [inject('s3'), inject('s3modern')].filter((server) => server !== undefined);

describe.each(servers)('requests with bodies to $name', (server) => {
  let ground: Awaited<ReturnType<typeof newBucket>>;
  let line: Awaited<ReturnType<typeof newLine>>;
  beforeAll(async () => {
    ground = await newBucket(server);
    line = await newLine(server.endpoint);
    await ground.storage.check();
  });
  afterEach(() => line.set({}));
  afterAll(async () => {
    await line?.close();
    await ground?.clear();
  });

  const openLine = () => openBucket(server, { bucket: ground.bucket, endpoint: line.endpoint });
  const refusing = (status: string, code = '') => {
    const said = code && `<Error><Code>${code}</Code></Error>`;
    return `HTTP/1.1 ${status}\r\ncontent-length: ${said.length}\r\nconnection: close\r\n\r\n${said}`;
  };
  const isPut = (chunk: Buffer) => /^PUT /.test(chunk.toString('latin1', 0, 4));
  function newSender(endpoint = server.endpoint) {
    const agents = agentsTo({ connections: 4 });
    const options = { bucket: ground.bucket, endpoint, region: server.region, forcePathStyle: true };
    const client = connect(options, agents);
    return { client, send: createSender(client, agents, options) };
  }

  test('requests with bodies have the same headers as those of the SDK', async () => {
    const heads: string[] = [];
    line.set({
      request(chunk, _sent, { client }) {
        if (isPut(chunk)) heads.push(chunk.toString('latin1').split('\r\n\r\n')[0]!);
        client.end(refusing('403 Forbidden', 'AccessDenied'));
        return undefined;
      },
    });
    process.env.AWS_SESSION_TOKEN = 'of/a+session=';
    try {
      const { client, send } = newSender(line.endpoint);
      const target = {
        Bucket: ground.bucket,
        Key: `a b/ü+%20/..x/(1)'!*~/日本語`,
        ContentType: 'video/mp4;  a="b"',
        ContentDisposition: `attachment; filename="a  b.mp4"; filename*=UTF-8''%C3%BC.mp4`,
        Metadata: { 'Asset-Id': 'a%2F1', variant: 'original', empty: '' },
        StorageClass: 'STANDARD_IA',
        ServerSideEncryption: 'aws:kms',
        SSEKMSKeyId: 'arn:aws:kms:eu-west-1:1:key/2',
      } as const;
      const body = metered(streaming(bytesOf(KiB)), { expected: KiB });
      await expect(send({ target, body, bytes: KiB })).rejects.toMatchObject({
        name: 'AccessDenied',
        $metadata: { httpStatusCode: 403 },
      });
      const theirs = { ...target, Body: streaming(bytesOf(KiB)), ContentLength: KiB };
      await expect(client.send(new PutObjectCommand(theirs))).rejects.toThrow();
      client.destroy();
    } finally {
      delete process.env.AWS_SESSION_TOKEN;
    }
    const [ours, theirs] = heads.map((head) => {
      const [first, ...lines] = head.split('\r\n');
      const signed = /SignedHeaders=([^,]+)/.exec(head)![1];
      const changing = /^(authorization|x-amz-date|x-amz-user-agent|amz-sdk-[a-z-]+|connection|expect|user-agent):/i;
      const kept = lines
        .filter((each) => !changing.test(each))
        .map((each) => each.replace(/^[^:]+/, (n) => n.toLowerCase()));
      return { first: first!.replace('?x-id=PutObject', ''), signed, kept: kept.toSorted() };
    });
    expect(ours!.kept).toContain('x-amz-security-token: of/a+session=');
    expect({ ...ours, signed: '' }).toEqual({ ...theirs, signed: '' });
    for (const name of ours!.kept.map((each) => each.split(':')[0]!)) {
      expect(ours!.signed!.split(';')).toContain(name);
    }
  });

  test.each([
    ['a few bytes', 5],
    ['one chunk', MiB],
    ['one chunk and a byte', MiB + 1],
    ['some chunks', 3 * MiB],
    ['a part', 16 * MiB],
  ])('a stream arrives unchanged, however it is split into chunks (%s)', async (_, length) => {
    const bytes = bytesOf(length);
    const stored = await ground.storage.put(
      'pieces',
      streaming(bytes, () => {}, 300_007),
      { bytes: length },
    );
    expect(stored.bytes).toBe(length);
    expect(bytes.equals(await collected((await ground.storage.get('pieces'))!))).toBe(true);
  });

  test.each([
    ['503 Slow Down', 'SlowDown'],
    ['500 Internal Error', 'InternalError'],
    ['502 Bad Gateway', ''],
    ['', ''],
  ])('a buffer is sent again after a temporary error, a stream is not (%s)', async (status, code) => {
    const storage = await openLine();
    await storage.check();
    let puts = 0;
    line.set({
      request(chunk, _sent, { client }) {
        if (!isPut(chunk) || ++puts > 2) return chunk;
        if (status) client.end(refusing(status, code));
        else client.destroy();
        return undefined;
      },
    });
    await storage.put('again', 'at hand');
    expect(puts).toBe(3);
    expect((await collected((await storage.get('again'))!)).toString()).toBe('at hand');
    puts = 0;
    const refused = await storage.put('again', streaming(bytesOf(KiB)), { bytes: KiB }).catch((error) => error);
    expect(refused).toBeInstanceOf(status ? RetryLater : Error);
    expect(puts).toBe(1);
    await storage.close();
  });

  test('a bucket in another region is reported', async () => {
    const storage = await openLine();
    await storage.check();
    line.set({
      request(chunk, _sent, { client }) {
        if (!isPut(chunk)) return chunk;
        client.end(refusing('301 Moved Permanently', 'PermanentRedirect'));
        return undefined;
      },
    });
    const put = storage.put('moved', streaming(bytesOf(KiB)), { bytes: KiB });
    await expect(put).rejects.toThrow(/the bucket is in another region/);
    await storage.close();
  });

  test('a large body waits for 100 Continue, and is sent anyway if the store does not answer', async () => {
    const storage = await openLine();
    await storage.check();
    let taken = 0;
    const began = performance.now();
    line.set({
      request(chunk, _sent, { client }) {
        // After a second, it is sent anyway.
        if (performance.now() - began < 1000) taken += chunk.length;
        if (isPut(chunk)) client.write(refusing('403 Forbidden', 'AccessDenied'));
        return undefined;
      },
    });
    await expect(storage.put('asked', streaming(bytesOf(4 * MiB)), { bytes: 4 * MiB })).rejects.toThrow(
      /denies access/,
    );
    expect(taken).toBeLessThan(4 * KiB);
    let hidden = 0;
    line.set({
      response(chunk) {
        if (!/^HTTP\/1.1 100/.test(chunk.toString('latin1', 0, 12))) return chunk;
        hidden++;
        return undefined;
      },
    });
    const bytes = bytesOf(4 * MiB);
    await storage.put('asked', streaming(bytes), { bytes: bytes.length });
    expect(hidden).toBe(1);
    expect(await ground.storage.head('asked')).toMatchObject({ bytes: bytes.length });
    await storage.close();
  });

  test('one connection to an S3 store serves several requests, large and small', async () => {
    const storage = await openLine();
    const some = async () => {
      for (const length of [KiB, 3 * MiB, 100 * KiB, 3 * MiB, 0]) {
        await storage.put('kept', streaming(bytesOf(length)), { bytes: length });
        await storage.put('kept', 'at hand');
      }
    };
    // Streams have one connection, and bytes in memory another; a second one until the first is known to be free.
    await some();
    const before = line.accepted;
    await some();
    // Versity's gateway ends each connection by itself.
    if (server.name.includes('Ceph')) expect(line.accepted - before).toBeLessThan(3);
    // Each is one connection to the proxy, and one from it.
    await expect.poll(() => line.open).toBeLessThanOrEqual(6);
    await storage.close();
  });

  test('idle connections to an S3 store are closed before the store closes them', { tags: 'slow' }, async () => {
    const storage = await openLine();
    await storage.put('idle', streaming(bytesOf(KiB)), { bytes: KiB });
    await storage.head('idle');
    // Ceph closes them after a minute.
    await until('idle connections to be closed', () => line.open === 0, 20_000);
    await storage.put('idle', streaming(bytesOf(KiB)), { bytes: KiB });
    await storage.close();
  });

  test('a store may be silent for longer than a connection is idle', { tags: 'slow' }, async () => {
    const storage = await openLine();
    let isDelayed = false;
    line.set({
      response(chunk, { client }) {
        if (isDelayed) return chunk;
        isDelayed = true;
        setTimeout(() => client.write(chunk), 6000);
        return undefined;
      },
    });
    expect(await storage.head('none')).toBeUndefined();
    await storage.close();
  });

  test('all requests to an S3 store go through the proxy', async () => {
    const proxy = await newProxy();
    const through = (no: string) =>
      openBucket(server, { bucket: ground.bucket, proxies: { http: proxy.url, https: '', no } });
    const storage = await through('');
    await storage.put('by-proxy', 'at hand');
    await storage.put('by-proxy', streaming(bytesOf(KiB)), { bytes: KiB });
    const large = bytesOf(3 * MiB);
    const stored = await storage.put('by-proxy', streaming(large), { bytes: large.length });
    expect(stored.checksums.crc32).toBe(crc32Of(large));
    await storage.close();
    const at = new URL(`${ground.bucket}/by-proxy`, server.endpoint);
    const puts = () => proxy.asked.splice(0).filter((asked) => asked.startsWith(`PUT ${at}`));
    expect(puts()).toHaveLength(3);
    const past = await through('127.0.0.1,localhost');
    await past.put('by-proxy', streaming(large), { bytes: large.length });
    await past.close();
    expect(puts()).toEqual([]);
    await proxy.close();
  });
});
