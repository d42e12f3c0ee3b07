import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { Disconnected, RetryLater } from '../../src/floor/errors.ts';
import { until } from '../support/until.ts';
import { answer, type Bare, hangUp } from './bare.ts';
import { broken, bytes, bytesOf, cutAt, etag, never, newDownloadGround, rest, stallAt } from './download-ground.ts';
import { failureOf } from './failure-of.ts';

const ground = await newDownloadGround();
const { library, admin, bare, downloader, newFile, bareLink } = ground;
afterEach(ground.reset);
afterAll(ground.close);

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
