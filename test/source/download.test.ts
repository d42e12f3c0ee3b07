import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Disconnected, RetryLater } from '../../src/floor/errors.ts';
import { createThrottle, type Throttle } from '../../src/source/bandwidth.ts';
import { LibraryClient } from '../../src/source/client.ts';
import { createDownloader, type Download, Missing } from '../../src/source/download.ts';
import { createAgent, HttpError } from '../../src/source/http.ts';
import { type MinRate, TooSlow } from '../../src/source/min-rate.ts';
import { type Admin, connect, type Library, startTestLibrary } from '../support/library.ts';
import { until } from '../support/until.ts';
import { answer, type Bare, hangUp, startBare } from './bare.ts';

const bytes = randomBytes(2_000_000);
const etag = '"one"';

let library: Library;
let admin: Admin;
let bare: Bare;
let token: string;
let companyId: string;
const agents: ReturnType<typeof createAgent>[] = [];
const never = new AbortController().signal;

beforeAll(async () => {
  ({ library, admin } = await startTestLibrary());
  bare = await startBare();
  companyId = (await admin.addCompany({ name: 'First', userIds: ['usr_ada'] })).id;
  token = (await connect(library)).access_token;
});
afterEach(async () => {
  await admin.clearFaults();
  await Promise.all(agents.splice(0).map((agent) => agent.destroy()));
  await until('no connection to be left', () => bare.sockets === 0);
});
afterAll(async () => {
  await bare.close();
  await library.close();
});

/**
 * With one socket only: if it is not released, the next request hangs. The servers are in this process, which may itself stand
 * still: a test that sets `stallMs` or `minRate` leaves a second or more for that.
 */
function downloader(
  options: { stallMs?: number; connections?: number; referer?: string; throttle?: Throttle; minRate?: MinRate } = {},
) {
  const { connections = 1, ...others } = options;
  const dispatcher = createAgent({ connections });
  agents.push(dispatcher);
  return createDownloader({ referer: library.appUrl, dispatcher, stallMs: 60_000, ...others });
}

/** A file at the library, and a link to it that counts its renewals. */
async function newFile(content = bytes) {
  const { id } = await admin.addAsset({
    companyId,
    name: 'file.bin',
    mimeType: 'application/octet-stream',
    assetType: 'documents',
    content: { base64: content.toString('base64') },
  });
  const dispatcher = createAgent({ connections: 1 });
  agents.push(dispatcher);
  const client = new LibraryClient({ apiUrl: library.apiUrl, dispatcher });
  const read = async () => (await client.getAsset({ token, assetId: id, signal: never })).download!.url!;
  const link = {
    url: await read(),
    renewed: 0,
    renew: () => {
      link.renewed++;
      return read();
    },
  };
  await admin.clearRequests();
  const requests = () => admin.requests({ endpoint: 'media', assetId: id });
  return { id, link, requests };
}

/** A link to the bare server. */
const bareLink = (renew: () => Promise<string> = async () => bare.url) => ({ url: bare.url, renew });

async function bytesOf(download: Download): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of download.body) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** What arrived before the error, and the error. */
async function broken(download: Download): Promise<{ arrived: Buffer; error: Error & { cause?: unknown } }> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of download.body) chunks.push(chunk);
  } catch (error) {
    return { arrived: Buffer.concat(chunks), error: error as Error };
  }
  throw new Error('the body was whole');
}
const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => {
      throw new Error('it was no failure');
    },
    (error) => error,
  );

/** The first `sent` bytes of a file, then the connection drops. */
const cutAt =
  (sent: number, headers: Record<string, string> = { etag }): Parameters<Bare['answer']>[0] =>
  (_request, response) => {
    response.writeHead(200, { 'content-length': String(bytes.length), ...headers });
    response.write(bytes.subarray(0, sent), () => response.socket?.destroySoon());
  };
/** The first `sent` bytes of a file, then nothing. */
const stallAt =
  (sent: number, headers: Record<string, string> = { etag }): Parameters<Bare['answer']>[0] =>
  (_request, response) => {
    response.writeHead(200, { 'content-length': String(bytes.length), ...headers });
    response.write(bytes.subarray(0, sent));
  };
const rest = (start: number, headers: Record<string, string> = {}, body: Buffer = bytes.subarray(start)) =>
  answer(206, body, { etag, 'content-range': `bytes ${start}-${bytes.length - 1}/${bytes.length}`, ...headers });

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

describe('the minimum rate', () => {
  const minRate = { bytesPerSecond: 8_000_000, windowMs: 50 };

  it('the minimum rate ends a download that the source sends more slowly', async () => {
    const { link, requests } = await newFile();
    await admin.setFaults({ endpoint: 'media', bytesPerSecond: 1000 });
    const { error } = await broken(await downloader({ minRate }).open(link, never));
    expect(error).toBeInstanceOf(TooSlow);
    expect(error.message).toMatch(/\/s for 50 ms, below TRANSFER_MIN_RATE \(7\.6 MiB\/s\)$/);
    expect(await requests()).toHaveLength(1);
  });

  it('the minimum rate ends a download whose many resumptions bring a few bytes each', async () => {
    const slowly: Parameters<Bare['answer']>[0] = ({ headers: { range } }, response) => {
      const start = Number(/\d+/.exec(range!)![0]);
      const headers = { etag, 'content-range': `bytes ${start}-${bytes.length - 1}/${bytes.length}` };
      response.writeHead(206, { 'content-length': String(bytes.length - start), ...headers });
      response.write(bytes.subarray(start, start + 1), () => response.socket?.destroySoon());
    };
    bare.answer(cutAt(1), slowly);
    const least = { bytesPerSecond: 1000, windowMs: 500 };
    const { error } = await broken(await downloader({ minRate: least }).open(bareLink(), never));
    expect(error).toBeInstanceOf(TooSlow);
  });

  it('the minimum rate still applies after another part of the file was given up', async () => {
    const { link } = await newFile();
    // The first chunk alone is enough for this rate, even if it takes seconds.
    const minRate = { bytesPerSecond: 5000, windowMs: 500 };
    const { body } = await downloader({ minRate }).open(link, never);
    for await (const chunk of body) {
      // Until no more is read ahead.
      await pause(100);
      if (chunk.length > 0) break;
    }
    await admin.setFaults({ endpoint: 'media', bytesPerSecond: 1000 });
    const next = await downloader({ minRate }).open(link, never);
    const { error } = await broken(next);
    expect(error).toBeInstanceOf(TooSlow);
  });

  it('the minimum rate permits a download that is slow because of a bandwidth limit or its reader', {
    tags: 'slow',
  }, async () => {
    const content = bytes.subarray(0, 600_000);
    const { link } = await newFile(content);
    // A busy process is far faster than this rate, and the limit and the reader are slower, for longer than the window.
    const least = { bytesPerSecond: 400_000, windowMs: 1000 };
    const { take } = createThrottle(300_000);
    const limited = downloader({ minRate: least, throttle: take });
    expect((await bytesOf(await limited.open(link, never))).equals(content)).toBe(true);
    const own = { ...link, throttle: take };
    expect((await bytesOf(await downloader({ minRate: least }).open(own, never))).equals(content)).toBe(true);
    const { body } = await downloader({ minRate: least }).open(link, never);
    let read = 0;
    for await (const chunk of body) {
      read += chunk.length;
      await pause(250);
    }
    expect(read).toBe(content.length);
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

describe('an expired link', () => {
  it('an expired link is renewed once', async () => {
    const { link } = await newFile();
    await admin.advanceClock(901);
    expect((await bytesOf(await downloader().open(link, never))).equals(bytes)).toBe(true);
    expect(link.renewed).toBe(1);
  });

  it('an expired link is renewed whatever 4xx it is refused with', async () => {
    for (const status of [400, 401, 403, 409, 451]) {
      bare.answer(answer(status, 'expired'), answer(200, 'x'));
      expect(String(await bytesOf(await downloader().open(bareLink(), never)))).toBe('x');
    }
  });

  it('an expired link is an error if the renewed link is refused too', async () => {
    const { link } = await newFile();
    await admin.setFaults({ endpoint: 'media', expireLinks: true });
    expect(await failureOf(downloader().open(link, never))).toMatchObject({ status: 403 });
    expect(link.renewed).toBe(1);
  });

  it('a link that expires during a download is renewed, and the download continues', async () => {
    const { link, requests } = await newFile();
    await admin.setFaults({ endpoint: 'media', cutAfter: 1_000_000, times: 1 });
    const { body } = await downloader().open(link, never);
    const chunks: Buffer[] = [];
    for await (const chunk of body) {
      if (chunks.length === 0) await admin.advanceClock(901);
      chunks.push(chunk);
    }
    expect(Buffer.concat(chunks).equals(bytes)).toBe(true);
    expect(link.renewed).toBe(1);
    expect((await requests()).map(({ status, range }) => [status, range])).toEqual([
      [200, null],
      [403, 'bytes=1000000-'],
      [206, 'bytes=1000000-'],
    ]);
  });

  it('a link that answers 404 during a download is renewed', async () => {
    bare.answer(cutAt(1000), answer(404), rest(1000));
    expect((await bytesOf(await downloader().open(bareLink(), never))).equals(bytes)).toBe(true);
  });
});

describe('a download that is interrupted', () => {
  it('a download that is interrupted continues at the same byte of the same version', async () => {
    const { link, requests } = await newFile();
    await admin.setFaults({ endpoint: 'media', cutAfter: 1_000_000, times: 1 });
    expect((await bytesOf(await downloader().open(link, never))).equals(bytes)).toBe(true);
    const [first, second, ...more] = await requests();
    expect(first).toMatchObject({ range: null, ifRange: null, status: 200 });
    expect(second).toMatchObject({ range: 'bytes=1000000-', ifRange: expect.stringMatching(/^"/), status: 206 });
    expect(second).toMatchObject({ referer: library.appUrl, hasAuthorization: false });
    expect(more).toEqual([]);
  });

  it('a download that is interrupted repeatedly continues as long as each try brings some bytes', async () => {
    const { link, requests } = await newFile();
    await admin.setFaults({ endpoint: 'media', cutAfter: 300_000 });
    expect((await bytesOf(await downloader().open(link, never))).equals(bytes)).toBe(true);
    expect(await requests()).toHaveLength(7);
  });

  it('a download that is interrupted continues at the same byte through redirects', async () => {
    const { link } = await newFile();
    await admin.setFaults(
      { endpoint: 'media', cutAfter: 500_000, times: 1 },
      { endpoint: 'media', redirect: 2, skip: 1, times: 1 },
    );
    expect((await bytesOf(await downloader().open(link, never))).equals(bytes)).toBe(true);
    const hops = (await admin.requests()).filter(({ path }) => path.includes('/media/')).slice(1);
    expect(hops).toHaveLength(3);
    for (const hop of hops) expect(hop).toMatchObject({ range: 'bytes=500000-', referer: library.appUrl });
  });

  it('a download that stalls is ended, and continues', { tags: 'slow' }, async () => {
    const { link, requests } = await newFile();
    await admin.setFaults({ endpoint: 'media', stallAfter: 700_000, times: 1 });
    expect((await bytesOf(await downloader({ stallMs: 2000 }).open(link, never))).equals(bytes)).toBe(true);
    expect((await requests()).map(({ range }) => range)).toEqual([null, 'bytes=700000-']);
  });

  it('a download that is interrupted and brings no more bytes is given up after some tries', {
    tags: 'slow',
  }, async () => {
    bare.answer(cutAt(1000), hangUp);
    const cut = await broken(await downloader().open(bareLink(), never));
    expect(cut.arrived.equals(bytes.subarray(0, 1000))).toBe(true);
    expect(bare.requests).toHaveLength(4);

    bare.answer(stallAt(1000), () => {});
    const stalled = await broken(await downloader({ stallMs: 1000 }).open(bareLink(), never));
    expect(stalled.arrived.equals(bytes.subarray(0, 1000))).toBe(true);
    expect(bare.requests).toHaveLength(4);
  });

  it('a download that is interrupted continues after errors of the library', async () => {
    bare.answer(cutAt(1000), answer(500), answer(503), rest(1000));
    expect((await bytesOf(await downloader().open(bareLink(), never))).equals(bytes)).toBe(true);
  });

  it('a download that is interrupted before it is read continues too', async () => {
    bare.answer(cutAt(1000), rest(1000));
    const download = await downloader().open(bareLink(), never);
    await until('the end of the line', () => bare.sockets === 0);
    expect((await bytesOf(download)).equals(bytes)).toBe(true);
  });

  it('a download that is interrupted waits if the library asks for it', async () => {
    bare.answer(cutAt(1000), answer(429, '', { 'retry-after': '60' }));
    const { error } = await broken(await downloader().open(bareLink(), never));
    expect(error).toBeInstanceOf(RetryLater);
    expect(bare.requests).toHaveLength(2);
  });

  it('a download that is interrupted ends if the connection was disconnected', async () => {
    bare.answer(cutAt(1000), answer(403));
    let renewals = 0;
    const link = bareLink(async () => {
      renewals++;
      throw new Disconnected('the user disconnected');
    });
    const { error } = await broken(await downloader().open(link, never));
    expect(error).toBeInstanceOf(Disconnected);
    expect(renewals).toBe(1);
  });
});

describe('the version of a file', () => {
  it('a file that is replaced during its download is an error', async () => {
    const { id, link, requests } = await newFile();
    await admin.setFaults({ endpoint: 'media', cutAfter: 1_000_000, times: 1 });
    const { body } = await downloader().open(link, never);
    const chunks: Buffer[] = [];
    const error = await failureOf(
      (async () => {
        for await (const chunk of body) {
          const other = { base64: Buffer.alloc(bytes.length, 1).toString('base64') };
          if (chunks.length === 0) await admin.changeAsset(id, { content: other });
          chunks.push(chunk);
        }
      })(),
    );
    expect(error.message).toMatch(
      /^the download was interrupted at byte 1000000, and the server cannot resume there \(status \d+\)$/,
    );
    expect(Buffer.concat(chunks).equals(bytes.subarray(0, 1_000_000))).toBe(true);
    expect(await requests()).toHaveLength(2);
  });

  it('a server that ignores Range is an error', async () => {
    const { link } = await newFile();
    await admin.setFaults(
      { endpoint: 'media', cutAfter: 1_000_000, times: 1 },
      { endpoint: 'media', ignoreRange: true },
    );
    const { arrived, error } = await broken(await downloader().open(link, never));
    expect(error.message).toContain('the server cannot resume there');
    expect(arrived.equals(bytes.subarray(0, 1_000_000))).toBe(true);
  });

  const length = bytes.length;
  const wrong: [string, Parameters<Bare['answer']>[0]][] = [
    ['another ETag', rest(1000, { etag: '"two"' })],
    ['the same ETag, but weak', rest(1000, { etag: `W/${etag}` })],
    ['an earlier start', rest(1000, { 'content-range': `bytes 999-${length - 1}/${length}` })],
    ['a later start', rest(1000, { 'content-range': `bytes 1001-${length - 1}/${length}` })],
    ['an end beyond the last byte', rest(1000, { 'content-range': `bytes 1000-${length}/${length}` })],
    ['an end before its start', rest(1000, { 'content-range': `bytes 1000-999/${length}` })],
    ['another size', rest(1000, { 'content-range': `bytes 1000-${length - 1}/${length + 1}` })],
    ['no size', rest(1000, { 'content-range': `bytes 1000-${length - 1}/*` })],
    ['a Content-Range in words', rest(1000, { 'content-range': 'all the rest' })],
    ['an encoding', rest(1000, { 'content-encoding': 'gzip' }, gzipSync(bytes.subarray(1000)))],
    ['several parts', rest(1000, { 'content-range': '', 'content-type': 'multipart/byteranges; boundary=x' })],
    ['no ETag', answer(206, bytes.subarray(1000), { 'content-range': `bytes 1000-${length - 1}/${length}` })],
    ['no Content-Range', answer(206, bytes.subarray(1000), { etag })],
    ['the whole file', answer(200, bytes, { etag })],
  ];
  for (const [what, continuation] of wrong) {
    it(`${what} in a continuation is an error`, async () => {
      bare.answer(cutAt(1000), continuation);
      const { arrived, error } = await broken(await downloader().open(bareLink(), never));
      expect(error.message).toMatch(
        /^the download was interrupted at byte 1000, and the server cannot resume there \(status \d+\)$/,
      );
      expect(arrived.equals(bytes.subarray(0, 1000))).toBe(true);
      expect(bare.requests).toHaveLength(2);
    });
  }

  it('a continuation that has more bytes than it declares is an error', async () => {
    const more = Buffer.concat([bytes.subarray(1000), Buffer.from('more')]);
    bare.answer(cutAt(1000), rest(1000, {}, more));
    const { error } = await broken(await downloader().open(bareLink(), never));
    expect(error.message).toBe(`the download ended at byte ${length + 4} of ${length}`);
  });

  it('a continuation beyond its declared end is an error', async () => {
    bare.answer(cutAt(1000), rest(1000, { 'content-range': `bytes 1000-${length - 2}/${length}` }));
    const { error } = await broken(await downloader().open(bareLink(), never));
    expect(error.message).toBe(`the download ended at byte ${length} of ${length - 1}`);
  });

  it('if a server sends less than requested, the rest is requested', async () => {
    const some = (from: number, to: number) =>
      answer(206, bytes.subarray(from, to), { etag, 'content-range': `bytes ${from}-${to - 1}/${length}` });
    bare.answer(some(100, 5000), some(5000, 5001), hangUp, some(5001, 9000));
    const part = downloader().part(bareLink(), { bytes: length, etag, contentType: undefined }, 100, 9000, never);
    expect(Buffer.concat(await part.toArray()).equals(bytes.subarray(100, 9000))).toBe(true);
    expect(bare.requests.map(({ headers }) => headers.range)).toEqual([
      'bytes=100-8999',
      'bytes=5000-8999',
      'bytes=5001-8999',
      'bytes=5001-8999',
    ]);
  });

  it('a continuation that is interrupted is continued, too', async () => {
    bare.answer(cutAt(1000), rest(1000, {}, bytes.subarray(1000, 5000)), rest(5000));
    expect((await bytesOf(await downloader().open(bareLink(), never))).equals(bytes)).toBe(true);
    expect(bare.requests.map(({ headers }) => headers.range)).toEqual([undefined, 'bytes=1000-', 'bytes=5000-']);
  });

  it('a download without a strong ETag or a length is not continued', async () => {
    const cases = [
      cutAt(1000, {}),
      cutAt(1000, { etag: `W/${etag}` }),
      cutAt(1000, { etag: '' }),
      ((_request, response) => {
        response.writeHead(200, { etag });
        response.write(bytes.subarray(0, 1000), () => response.socket?.destroySoon());
      }) satisfies Parameters<Bare['answer']>[0],
    ];
    for (const first of cases) {
      bare.answer(first, rest(1000));
      const { arrived, error } = await broken(await downloader().open(bareLink(), never));
      expect(error.message).toMatch(/^the download was interrupted: /);
      expect(arrived.equals(bytes.subarray(0, 1000))).toBe(true);
      expect(bare.requests).toHaveLength(1);
    }
  });
});

describe('an abort', () => {
  const reason = new Error('enough');
  const aborting = () => {
    const stop = new AbortController();
    return { signal: stop.signal, abort: () => stop.abort(reason) };
  };

  it('an abort before a download sends no request', async () => {
    bare.answer(answer(200, 'x'));
    await failureOf(downloader().open(bareLink(), AbortSignal.abort(reason)));
    expect(bare.requests).toHaveLength(0);
  });

  it('an abort ends a download that waits for its answer', async () => {
    const { signal, abort } = aborting();
    bare.answer(abort);
    expect(await failureOf(downloader().open(bareLink(), signal))).toBe(reason);
  });

  it('an abort ends a download that waits for bytes, without another request', async () => {
    const { signal, abort } = aborting();
    bare.answer(stallAt(1000));
    const download = await downloader().open(bareLink(), signal);
    const ended = broken(download);
    await until('the bytes', () => download.body.readableDidRead);
    abort();
    expect((await ended).error.cause).toBe(reason);
    await until('the line to be free', () => bare.sockets === 0);
    expect(bare.requests).toHaveLength(1);
  });

  it('an abort ends the tries after the connection has dropped again', async () => {
    const { signal, abort } = aborting();
    const dropAndAbort: Parameters<Bare['answer']>[0] = (request, response) => {
      hangUp(request, response);
      setImmediate(abort);
    };
    bare.answer(cutAt(1000), dropAndAbort, rest(1000));
    await broken(await downloader().open(bareLink(), signal));
    expect(bare.requests).toHaveLength(2);
  });

  it('an abort ends a download that waits for its continuation', async () => {
    const { signal, abort } = aborting();
    bare.answer(cutAt(1000), abort);
    const { error } = await broken(await downloader().open(bareLink(), signal));
    expect(error).toBe(reason);
  });

  it('an abort before the body is read frees the connection, and reading then fails', async () => {
    const { signal, abort } = aborting();
    bare.answer(stallAt(1000));
    const download = await downloader().open(bareLink(), signal);
    abort();
    await until('the line to be free', () => bare.sockets === 0);
    const { arrived } = await broken(download);
    expect(arrived.length).toBeLessThan(bytes.length);
    expect(bare.requests).toHaveLength(1);
  });
});

describe('a destroyed body', () => {
  it('a body that is destroyed before it is read frees its socket', async () => {
    const { link } = await newFile();
    const one = downloader();
    for (let i = 0; i < 5; i++) (await one.open(link, never)).body.destroy();
    expect((await bytesOf(await one.open(link, never))).equals(bytes)).toBe(true);
  });

  it('a body that is destroyed in the middle of the file frees its socket', async () => {
    const { link, requests } = await newFile();
    const one = downloader();
    for (let i = 0; i < 5; i++) for await (const _ of (await one.open(link, never)).body) break;
    expect((await bytesOf(await one.open(link, never))).equals(bytes)).toBe(true);
    expect(await requests()).toHaveLength(6);
  });

  it('a body that is destroyed while it waits for bytes frees its socket at once, without another request', async () => {
    bare.answer(stallAt(1000));
    const { body } = await downloader({ stallMs: 600_000 }).open(bareLink(), never);
    body.resume();
    body.on('error', () => {});
    await until('the bytes', () => body.readableDidRead);
    body.destroy();
    await until('the line to be free', () => bare.sockets === 0);
    expect(bare.requests).toHaveLength(1);
  });

  it('a body that is destroyed while it waits for a continuation frees its socket', async () => {
    const second = Promise.withResolvers<void>();
    bare.answer(cutAt(1000), () => second.resolve());
    const { body } = await downloader({ stallMs: 600_000 }).open(bareLink(), never);
    body.resume();
    body.on('error', () => {});
    await second.promise;
    body.destroy();
    await until('the line to be free', () => bare.sockets === 0);
    expect(bare.requests).toHaveLength(2);
  });

  it('a body that is destroyed has the error that it was destroyed with', async () => {
    bare.answer(stallAt(1000));
    const { body } = await downloader().open(bareLink(), never);
    const closed = Promise.withResolvers<Error>();
    body.on('error', closed.resolve);
    body.destroy(new Error('the bucket is full'));
    expect((await closed.promise).message).toBe('the bucket is full');
  });

  it('unused answers free their sockets, even if they never end', { tags: 'slow' }, async () => {
    const endless =
      (status: number, headers: Record<string, string> = {}): Parameters<Bare['answer']>[0] =>
      (_request, response) => {
        response.writeHead(status, { 'content-length': '500', ...headers }).write('x');
      };
    bare.answer(endless(302, { location: '/there' }), endless(403), answer(200, 'x'));
    const one = downloader({ stallMs: 1000 });
    expect(String(await bytesOf(await one.open(bareLink(), never)))).toBe('x');
    for (const status of [404, 500, 429, 206]) {
      bare.answer(endless(status));
      await failureOf(one.open(bareLink(), never));
    }
    bare.answer(cutAt(1000), endless(416), rest(1000));
    expect((await bytesOf(await one.open(bareLink(), never))).equals(bytes)).toBe(true);
  });
});

describe('a stall', () => {
  it('a stall is detected before the head of the answer', async () => {
    bare.answer(() => {});
    const error = await failureOf(downloader({ stallMs: 200 }).open(bareLink(), never));
    expect(error.code).toBe('UND_ERR_HEADERS_TIMEOUT');
  });

  it('a stall is not detected while bytes come, however slowly', { tags: 'slow' }, async () => {
    const stallMs = 3000;
    bare.answer(async (_request, response) => {
      response.writeHead(200, { 'content-length': '8', etag });
      for (const byte of 'slow but') {
        response.write(byte);
        await pause(stallMs / 6);
      }
      response.end();
    });
    expect(String(await bytesOf(await downloader({ stallMs }).open(bareLink(), never)))).toBe('slow but');
    expect(bare.requests).toHaveLength(1);
  });

  it('a stall is not detected while the reader pauses', { tags: 'slow' }, async () => {
    const stallMs = 2500;
    const large = randomBytes(20_000_000);
    const { link, requests } = await newFile(large);
    const download = await downloader({ stallMs }).open(link, never);
    // Before the start, and in the middle, with more bytes in transit than all buffers hold.
    await pause(stallMs + 500);
    const chunks: Buffer[] = [];
    for await (const chunk of download.body) {
      if (chunks.length === 3) await pause(stallMs + 500);
      chunks.push(chunk);
    }
    expect(Buffer.concat(chunks).equals(large)).toBe(true);
    expect(await requests()).toHaveLength(1);
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
