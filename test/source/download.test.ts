import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { RetryLater } from '../../src/floor/errors.ts';
import { Missing } from '../../src/source/download.ts';
import { HttpError } from '../../src/source/http.ts';
import { until } from '../support/until.ts';
import { answer } from './bare.ts';
import { broken, bytes, bytesOf, cutAt, never, newDownloadGround } from './download-ground.ts';
import { failureOf } from './failure-of.ts';

const ground = await newDownloadGround();
const { library, admin, bare, downloader, newFile, bareLink } = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('a download', () => {
  it('a download is the whole file, with its length and type', async () => {
    const { link } = await newFile();
    const download = await downloader().open(link, never);
    expect(download).toMatchObject({ bytes: bytes.length, contentType: 'application/octet-stream', unbounded: false });
    expect((await bytesOf(download)).equals(bytes)).toBe(true);
    expect(link.renewed).toBe(0);
  });

  it('a download of an empty file is empty', async () => {
    const { link } = await newFile(Buffer.alloc(0));
    const download = await downloader().open(link, never);
    expect(download.bytes).toBe(0);
    expect(await bytesOf(download)).toHaveLength(0);
  });

  it('a download carries the exact Referer and no Authorization, on every hop of a redirect', async () => {
    const { link } = await newFile();
    await admin.setFaults({ endpoint: 'media', redirect: 3 });
    expect((await bytesOf(await downloader().open(link, never))).equals(bytes)).toBe(true);
    const hops = (await admin.requests()).filter(({ path }) => path.includes('/media/'));
    expect(hops).toHaveLength(4);
    for (const hop of hops) expect(hop).toMatchObject({ referer: library.appUrl, hasAuthorization: false });
  });

  it('a download carries the Referer exactly as configured, and requests no encoding', async () => {
    bare.answer(answer(302, '', { location: '/there' }), answer(200, 'x'));
    await bytesOf(await downloader({ referer: 'https://app.example.com/' }).open(bareLink(), never));
    expect(bare.requests.map(({ path }) => path)).toEqual(['/', '/there']);
    for (const { headers } of bare.requests) {
      expect(headers).toMatchObject({ referer: 'https://app.example.com/', 'accept-encoding': 'identity' });
      expect(headers.authorization).toBeUndefined();
    }
  });

  it('a download follows neither endless redirects nor one to another scheme than http', async () => {
    bare.answer(answer(302, '', { location: '/again' }));
    expect((await failureOf(downloader().open(bareLink(), never))).message).toContain('too many redirects');
    for (const location of ['file:///etc/passwd', 'ftp://h/x', 'javascript:1']) {
      bare.answer(answer(302, '', { location }));
      const error = await failureOf(downloader().open(bareLink(), never));
      expect(error.message).toBe('the download link is not a web address');
    }
    const nothing = { url: 'x', renew: async () => 'x' };
    expect((await failureOf(downloader().open(nothing, never))).message).toBe('the download link is not a web address');
  });

  it('a download without a length is complete if it is chunked, and unbounded if only the connection ends it', async () => {
    const { link } = await newFile();
    await admin.setFaults({ endpoint: 'media', chunked: true });
    const chunked = await downloader().open(link, never);
    expect(chunked).toMatchObject({ bytes: undefined, unbounded: false });
    expect((await bytesOf(chunked)).equals(bytes)).toBe(true);

    const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n';
    bare.answer((request) => request.socket.end(`${head}3\r\nend\r\n0\r\n\r\n`));
    const inCapitals = await downloader().open(bareLink(), never);
    expect(inCapitals).toMatchObject({ bytes: undefined, unbounded: false });
    expect(String(await bytesOf(inCapitals))).toBe('end');

    bare.answer((request) => request.socket.end('HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end'));
    const plain = await downloader().open(bareLink(), never);
    expect(plain).toMatchObject({ bytes: undefined, unbounded: true });
    expect(String(await bytesOf(plain))).toBe('until the end');
  });

  it('a download with any content encoding is refused', async () => {
    const { link } = await newFile();
    const one = downloader();
    for (const contentEncoding of ['gzip', 'br', 'zstd', 'aws-chunked']) {
      await admin.setFaults({ endpoint: 'media', contentEncoding });
      const error = await failureOf(one.open(link, never));
      expect(error.message).toBe(`the download is encoded (${contentEncoding}), although the request forbids it`);
    }
    await admin.setFaults({ endpoint: 'media', contentEncoding: 'identity' });
    expect((await bytesOf(await one.open(link, never))).equals(bytes)).toBe(true);
  });

  it('a download has the length that the server declares, not that of the API', async () => {
    const { link } = await newFile();
    await admin.setFaults({ endpoint: 'media', shortBy: 5 });
    const short = await downloader().open(link, never);
    expect(short.bytes).toBe(bytes.length - 5);
    expect(await bytesOf(short)).toHaveLength(bytes.length - 5);
    await admin.setFaults({ endpoint: 'media', longBy: 5 });
    const long = await downloader().open(link, never);
    expect(long.bytes).toBe(bytes.length + 5);
    expect(await bytesOf(long)).toHaveLength(bytes.length + 5);
  });

  it('a download never has more bytes than declared', async () => {
    bare.answer((request) => request.socket.end('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour and more'));
    const download = await downloader().open(bareLink(), never);
    expect(String(await bytesOf(download).catch(() => 'four'))).toBe('four');
  });
});

describe('an answer without a file', () => {
  it('a download that gets 404 or 410 is of a missing file', async () => {
    const { id, link } = await newFile();
    await admin.changeAsset(id, { originalGone: true });
    expect(await failureOf(downloader().open(link, never))).toBeInstanceOf(Missing);
    expect(link.renewed).toBe(0);
    bare.answer(answer(410));
    expect(await failureOf(downloader().open(bareLink(), never))).toBeInstanceOf(Missing);
  });

  it('a download that gets 429, or 503 with Retry-After, is retried later', async () => {
    const { link } = await newFile();
    for (const status of [429, 503]) {
      await admin.setFaults({ endpoint: 'media', status, retryAfter: 60 });
      const error = await failureOf(downloader().open(link, never));
      expect(error).toBeInstanceOf(RetryLater);
      expect(error.waitMs).toBeGreaterThan(59_000);
    }
    expect(link.renewed).toBe(0);
  });

  it('a download that gets any other status is an error with that status, never a body', async () => {
    for (const status of [201, 204, 206, 300, 304, 416, 500, 502, 503]) {
      bare.answer(answer(status, status === 204 || status === 304 ? '' : 'words'));
      const error = await failureOf(downloader().open(bareLink(), never));
      expect(error, String(status)).toBeInstanceOf(HttpError);
      expect(error.status).toBe(status);
    }
  });

  it('the error of a download never shows the address of the link', async () => {
    const { link } = await newFile();
    await admin.setFaults({ endpoint: 'media', status: 500 });
    const error = await failureOf(downloader().open(link, never));
    expect(error.message).toBe('download: the library answered 500');
  });
});

describe('the first bytes', () => {
  it('the first bytes can be read before the body, which still has them', async () => {
    const { link, requests } = await newFile();
    const download = await downloader().open(link, never);
    const head = await download.peek(512);
    expect(head.equals(bytes.subarray(0, head.length)) && head.length >= 512).toBe(true);
    expect((await bytesOf(download)).equals(bytes)).toBe(true);
    expect(await requests()).toHaveLength(1);
  });

  it('the first bytes are as many as requested, in whatever chunks they come, or the whole file', async () => {
    bare.answer(async (_request, response) => {
      response.writeHead(200, { 'content-length': '10' });
      for (const byte of '0123456789') {
        response.write(byte);
        await pause(5);
      }
      response.end();
    });
    for (const [asked, least] of [
      [5, 5],
      [10, 10],
      [512, 10],
    ] as const) {
      const download = await downloader().open(bareLink(), never);
      expect((await download.peek(asked)).length).toBeGreaterThanOrEqual(least);
      expect(String(await bytesOf(download))).toBe('0123456789');
    }
    bare.answer(answer(200, ''));
    const empty = await downloader().open(bareLink(), never);
    expect((await empty.peek(512)).length).toBe(0);
    expect((await bytesOf(empty)).length).toBe(0);
  });

  it('an interruption in the first bytes is an error, also of the body', async () => {
    bare.answer(cutAt(100, {}));
    const download = await downloader().open(bareLink(), never);
    await expect(download.peek(512)).rejects.toThrow(/was interrupted|ended at byte/);
    expect((await broken(download)).error.message).toMatch(/was interrupted|ended at byte/);
  });

  it('the first bytes are available although the rest is interrupted: the reader gets the error', async () => {
    bare.answer(cutAt(1000, {}));
    const download = await downloader().open(bareLink(), never);
    expect((await download.peek(512)).length).toBeGreaterThanOrEqual(512);
    // There is no listener meanwhile; an unhandled error would end the process.
    await until('the connection to be closed', () => bare.sockets === 0);
    await expect(download.body.toArray()).rejects.toThrow(/was interrupted|ended at byte/);
  });

  it('a wait for the first bytes can be aborted', async () => {
    bare.answer((_request, response) => response.writeHead(200, { 'content-length': '10' }).flushHeaders());
    const stop = new AbortController();
    const download = await downloader().open(bareLink(), stop.signal);
    const head = failureOf(download.peek(512));
    stop.abort(new Error('enough'));
    expect(await head).toBeInstanceOf(Error);
    await until('the connection to be closed', () => bare.sockets === 0);
  });
});
