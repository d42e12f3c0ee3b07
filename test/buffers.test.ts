import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { filled, handBack, lend } from '../src/buffers.ts';
import { createDownloader } from '../src/source/download.ts';
import { createAgent } from '../src/source/http.ts';
import type { Part, Storage } from '../src/storage/storage.ts';
import { partLength } from '../src/storage/storage.ts';
import { collected } from './storage/bodies.ts';
import { newBucket, newDirectory } from './storage/grounds.ts';
import { type Certificates, newCertificates } from './support/certificates.ts';

/** How many of the next `count` that are lent are made for it. */
function made(count: number): number {
  const making = vi.spyOn(Buffer, 'allocUnsafeSlow');
  for (let i = 0; i < count; i++) lend();
  const { length } = making.mock.calls;
  making.mockRestore();
  return length;
}

/** Whatever lies ready is taken away first, so that what is lent next is new or was handed back since. */
function emptied(): void {
  while (made(1) === 0);
}

/** What has been read, to be known again by its first byte. */
function read(mark: number, bytes = 50_000): Buffer {
  const buffer = lend();
  buffer[0] = mark;
  return filled(buffer, bytes);
}

describe('a lent buffer', () => {
  it('is lent again once all that was read into it is handed back, and whoever still has it has nothing', () => {
    emptied();
    const chunk = read(41);
    handBack(chunk);
    expect(chunk.length).toBe(0);
    expect(lend()[0]).toBe(41);
  });

  it('is lent to one at a time, however often it is handed back', () => {
    emptied();
    const chunk = read(42);
    const same = Buffer.from(chunk.buffer, 0, chunk.length);
    for (const again of [chunk, chunk, same]) handBack(again);
    expect(lend()[0]).toBe(42);
    expect(made(1)).toBe(1);
  });

  it('is not lent again while something is behind what is handed back, nor what was never lent', () => {
    emptied();
    const chunk = read(43);
    for (const other of [chunk.subarray(0, 49_999), chunk.subarray(10, 20), Buffer.from(chunk), Buffer.alloc(50_000)]) {
      handBack(other);
    }
    expect([chunk[0], chunk.length]).toEqual([43, 50_000]);
    expect(made(1)).toBe(1);
    handBack(chunk.subarray(200));
    expect(chunk.length).toBe(0);
    expect(lend()[0]).toBe(43);
  });

  it('is not held by the few bytes of a slow line', () => {
    emptied();
    const chunk = read(44, 1400);
    expect([chunk[0], chunk.length]).toEqual([44, 1400]);
    expect(chunk.buffer.byteLength).not.toBe(120 * 1024);
    const again = lend();
    again.fill(0);
    expect(chunk[0]).toBe(44);
  });

  it('is let go of when enough of them lie ready', () => {
    emptied();
    const chunks = Array.from({ length: 100 }, () => read(45));
    for (const chunk of chunks) handBack(chunk);
    expect(made(100)).toBe(100 - 32);
  });
});

const { signal } = new AbortController();
const MiB = 2 ** 20;
const content = randomBytes(64 * MiB);
const protocols = ['http', 'https'] as const;
const sources: Server[] = [];
const urls = { http: '', https: '' };
let certificates: Certificates;
const known = getCACertificates('default');

beforeAll(async () => {
  certificates = await newCertificates();
  setDefaultCACertificates([...known, await readFile(certificates.ca, 'utf8')]);
  // In pieces of all sizes, with the loop turning between them, so that reads end anywhere; every other line ends with its bytes.
  let answers = 0;
  const answer: RequestListener = async (request, response) => {
    const { range } = request.headers;
    if (request.url === '/plain') {
      response.end(content.subarray(0, 100_000));
      return;
    }
    const part = /^bytes=(\d+)-(\d*)$/.exec(range ?? '');
    const [from, to] = (part ?? /(\d+)-(\d+)$/.exec(request.url!)!).slice(1).map(Number) as [number, number];
    const end = to ? to + 1 : content.length;
    const chunked = !part && ++answers % 3 === 0;
    response.writeHead(part ? 206 : 200, {
      ...(part && { 'content-range': `bytes ${from}-${end - 1}/${content.length}` }),
      ...(!chunked && { 'content-length': end - from }),
      etag: '"one"',
      ...(++answers % 2 === 0 && { connection: 'close' }),
    });
    for (let at = from; at < end && !response.destroyed; ) {
      const length = Math.ceil(Math.random() ** 3 * 400_000);
      const next = Math.min(end, at + length);
      if (!response.write(content.subarray(at, next))) {
        await once(response, 'drain').catch(() => {});
      } else if (length % 3 === 0) await turn();
      at = next;
    }
    response.end();
  };
  const secured = { cert: await readFile(certificates.cert), key: await readFile(certificates.key) };
  for (const protocol of protocols) {
    const server = protocol === 'https' ? createSecureServer(secured, answer) : createServer(answer);
    sources.push(server.listen(0, '127.0.0.1'));
    await once(server, 'listening');
    urls[protocol] = `${protocol}://127.0.0.1:${(server.address() as AddressInfo).port}/file`;
  }
});
afterAll(async () => {
  for (const server of sources) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
  setDefaultCACertificates(known);
  await certificates?.clear();
});

const [s3, modern] = [inject('s3'), inject('s3modern')];
interface Ground {
  name: string;
  open(): Promise<{ storage: Storage; clear(): Promise<void> }>;
}
const grounds: Ground[] = [{ name: 'a directory', open: newDirectory }];
if (s3) grounds.push({ name: `a bucket of ${s3.name}`, open: () => newBucket(s3) });
if (modern) grounds.push({ name: `a bucket of ${modern.name}`, open: () => newBucket(modern) });

describe.each(grounds)('what is read into lent buffers, into $name', ({ open }) => {
  it.each(protocols)('is whole when it comes in parts, all of them at once, by %s', async (protocol) => {
    const url = urls[protocol];
    const ground = await open();
    const dispatcher = createAgent({ connections: 8, lends: true });
    const downloader = createDownloader({ referer: 'http://127.0.0.1', dispatcher, stallMs: 5000 });
    const link = { url, renew: async () => url };
    const pinned = { bytes: content.length, etag: '"one"', contentType: undefined };
    try {
      const { uploads } = ground.storage;
      const upload = await uploads.begin('file', { bytes: content.length, contentType: 'video/mp4' });
      const making = vi.spyOn(Buffer, 'allocUnsafeSlow');
      const numbers = Array.from({ length: Math.ceil(content.length / upload.partBytes) }, (_, i) => i + 1);
      const parts: Part[] = await Promise.all(
        numbers.map((number) => {
          const from = (number - 1) * upload.partBytes;
          const body = downloader.part(link, pinned, from, from + partLength(upload, number), signal);
          return uploads.put(upload, number, body, { signal });
        }),
      );
      const buffers = making.mock.calls.filter(([bytes]) => bytes === 120 * 1024).length;
      making.mockRestore();
      await uploads.complete(upload, parts);
      const stored = await collected((await ground.storage.get('file'))!);
      expect(stored.equals(content)).toBe(true);
      // Of at least that many reads. (Of what TLS gave, some is joined to what waits before it.)
      if (protocol === 'http') expect(buffers).toBeLessThan(content.length / (120 * 1024) / 2);
    } finally {
      await dispatcher.destroy();
      await ground.clear();
    }
  });

  it.each(protocols)('is whole when it comes at once, one file behind the other, by %s', async (protocol) => {
    const ground = await open();
    const dispatcher = createAgent({ connections: 8, lends: true });
    const downloader = createDownloader({ referer: 'http://127.0.0.1', dispatcher, stallMs: 5000 });
    const files = Array.from({ length: 160 }, (_, i) => {
      const from = Math.floor(Math.random() * 60 * MiB);
      return { key: `file-${i}`, from, to: from + Math.ceil(Math.random() ** 2 * 600_000) };
    });
    try {
      let next = 0;
      await Promise.all(
        Array.from({ length: 8 }, async () => {
          for (let file = files[next++]; file; file = files[next++]) {
            const url = `${urls[protocol]}/${file.from}-${file.to - 1}`;
            const { body } = await downloader.open({ url, renew: async () => url }, signal);
            const { bytes } = await ground.storage.put(file.key, body, { bytes: file.to - file.from, signal });
            expect(bytes).toBe(file.to - file.from);
          }
        }),
      );
      for (const { key, from, to } of files) {
        const stored = await collected((await ground.storage.get(key))!);
        expect(stored.equals(content.subarray(from, to))).toBe(true);
      }
    } finally {
      await dispatcher.destroy();
      await ground.clear();
    }
  });

  it('is handed back when it is in the store, the first with the head of the answer in it, too', async () => {
    const ground = await open();
    const dispatcher = createAgent({ connections: 1, lends: true });
    const downloader = createDownloader({ referer: 'http://127.0.0.1', dispatcher, stallMs: 5000 });
    const url = new URL('/plain', urls.http).href;
    try {
      emptied();
      const making = vi.spyOn(Buffer, 'allocUnsafeSlow');
      for (let i = 0; i < 40; i++) {
        const { body } = await downloader.open({ url, renew: async () => url }, signal);
        await ground.storage.put('file', body, { bytes: 100_000, signal });
      }
      const buffers = making.mock.calls.filter(([bytes]) => bytes === 120 * 1024).length;
      making.mockRestore();
      expect(buffers).toBeLessThan(10);
      const stored = await collected((await ground.storage.get('file'))!);
      expect(stored.equals(content.subarray(0, 100_000))).toBe(true);
    } finally {
      await dispatcher.destroy();
      await ground.clear();
    }
  });
});
