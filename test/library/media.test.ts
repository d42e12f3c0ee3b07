import { createCipheriv, createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseRange } from '../../src/library/api/range.ts';
import { bytesOf } from '../../src/library/index.ts';
import {
  type Admin,
  connect,
  type DetailedAsset,
  type Library,
  startTestLibrary,
  type Upload,
} from '../support/library.ts';

let library: Library;
let admin: Admin;
let token: string;
let companyId: string;

beforeAll(async () => {
  ({ library, admin } = await startTestLibrary());
  companyId = (await admin.addCompany({ name: 'First', userIds: ['usr_ada'] })).id;
  token = (await connect(library)).access_token;
});
afterAll(() => library.close());

async function detail(id: string): Promise<DetailedAsset> {
  const response = await fetch(`${library.apiUrl}/api/v1/assets/${id}`, {
    headers: { authorization: `Bearer ${token}` },
  });
  return ((await response.json()) as { asset: DetailedAsset }).asset;
}

async function upload(asset: Partial<Upload>): Promise<DetailedAsset> {
  const { id } = await admin.addAsset({
    companyId,
    name: 'x.mp4',
    mimeType: 'video/mp4',
    assetType: 'videos',
    ...asset,
  });
  return detail(id);
}

function download(url: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Response> {
  return fetch(url, { method, headers: { referer: library.appUrl, ...headers } });
}

async function text(response: Response): Promise<{ status: number; text: string }> {
  return { status: response.status, text: await response.text() };
}

const letters = { content: { text: 'abcdefghij' } };

describe('signed links (4.7, 8)', () => {
  it('a signed link serves the original with its name, size and type', async () => {
    const { download: link, size } = await upload({ ...letters, name: 'Größe.mp4' });
    const response = await download(link.url);
    expect(response.headers.get('content-type')).toBe('video/mp4');
    expect(response.headers.get('content-length')).toBe('10');
    expect(response.headers.get('content-disposition')).toBe(
      `attachment; filename="Gr??e.mp4"; filename*=UTF-8''Gr%C3%B6%C3%9Fe.mp4`,
    );
    expect(await response.text()).toBe('abcdefghij');
    expect(size).toBe(10);
  });

  it.each(['\u0000\n\u202e.mp4', 'half \ud800', '', '../../x', 'a"b\\c', 'x'.repeat(5000), '🎬'.repeat(300)])(
    'a file with the name %j is served',
    async (name) => {
      const { download: link } = await upload({ ...letters, name, filename: name });
      expect(link.filename).toBe(name);
      const response = await download(link.url);
      expect(await text(response)).toEqual({ status: 200, text: 'abcdefghij' });
      expect(response.headers.get('content-disposition')).toMatch(/^attachment/);
    },
  );

  it('a signed link needs the address of the app as Referer, with or without a trailing slash', async () => {
    const { download: link, thumbnailUrl } = await upload(letters);
    for (const url of [link.url, link.mp4Url!, thumbnailUrl!]) {
      expect((await fetch(url)).status).toBe(403);
      expect((await download(url, { referer: 'https://elsewhere.example/' })).status).toBe(403);
      expect((await download(url, { referer: `${library.appUrl}/page` })).status).toBe(403);
      expect((await download(url)).status).toBe(200);
      expect((await download(url, { referer: `${library.appUrl}/` })).status).toBe(200);
    }
  });

  it('a signed link needs no token, and cannot be changed', async () => {
    const { download: link } = await upload(letters);
    const other = await upload(letters);
    const { pathname } = new URL(other.download.url);
    for (const url of [
      link.url.replace(new URL(link.url).pathname, pathname),
      link.url.replace('/original', '/mp4'),
      link.url.replace(/expires=\d+/, `expires=${link.expiresAt + 1}`),
      link.url.replace(/signature=.*/, 'signature='),
      link.url.split('?')[0]!,
    ]) {
      expect((await download(url)).status, url).toBe(403);
    }
  });

  it('a signed link expires at download.expiresAt', async () => {
    const other = await startTestLibrary();
    try {
      const company = await other.admin.addCompany({ name: 'C', userIds: ['usr_ada'] });
      const { id } = await other.admin.addAsset({
        companyId: company.id,
        name: 'x',
        mimeType: 'text/plain',
        assetType: 'documents',
      });
      const headers = { authorization: `Bearer ${(await connect(other.library)).access_token}` };
      const earliest = Math.floor(Date.now() / 1000) + 900;
      const answer = (await (await fetch(`${other.library.apiUrl}/api/v1/assets/${id}`, { headers })).json()) as {
        asset: DetailedAsset;
      };
      const { url, expiresAt } = answer.asset.download;
      expect(expiresAt).toBeGreaterThanOrEqual(earliest);
      expect(expiresAt).toBeLessThanOrEqual(Date.now() / 1000 + 900);
      const referer = other.library.appUrl;
      expect((await fetch(url, { headers: { referer } })).status).toBe(200);
      await other.admin.advanceClock(901);
      const response = await fetch(url, { headers: { referer } });
      expect(response.status).toBe(403);
      expect(await response.json()).toMatchObject({ error: 'link_expired' });
    } finally {
      await other.library.close();
    }
  });

  it('the url of a video without its original answers 404, and its mp4Url works', async () => {
    const { download: link, size } = await upload({
      content: { seed: 1, size: 100 },
      mp4: { text: 'mp4' },
      originalGone: true,
    });
    expect((await download(link.url)).status).toBe(404);
    expect(await text(await download(link.mp4Url!))).toEqual({ status: 200, text: 'mp4' });
    expect(size).toBe(100);
  });

  it('the link of an asset without a file answers 404', async () => {
    for (const { id } of [await upload({ status: 'unavailable' }), await upload(letters)]) {
      await admin.changeAsset(id, { status: 'unavailable' });
      const { download: link, status, size } = await detail(id);
      expect([status, size]).toEqual(['unavailable', 0]);
      expect((await download(link.url)).status).toBe(404);
    }
  });

  it('links have the public address, and need it as Referer', async () => {
    const publicUrl = 'https://library.example';
    const { library, admin } = await startTestLibrary({ publicUrl: `${publicUrl}/` });
    try {
      expect([library.apiUrl, library.appUrl]).toEqual([publicUrl, publicUrl]);
      const company = await admin.addCompany({ name: 'C', userIds: ['usr_ada'] });
      const { thumbnailUrl } = await admin.addAsset({
        companyId: company.id,
        name: 'x',
        mimeType: 'image/png',
        assetType: 'graphics',
      });
      expect(thumbnailUrl).toMatch(`${publicUrl}/media/`);
    } finally {
      await library.close();
    }
  });
});

describe('ranges', () => {
  it('ranges are served with the ETag of the whole file', async () => {
    const { download: link } = await upload(letters);
    const whole = await download(link.url);
    const part = await download(link.url, { range: 'bytes=2-4' });
    expect(whole.headers.get('accept-ranges')).toBe('bytes');
    expect(part.status).toBe(206);
    expect(part.headers.get('content-range')).toBe('bytes 2-4/10');
    expect(part.headers.get('content-length')).toBe('3');
    expect(part.headers.get('etag')).toBe(whole.headers.get('etag'));
    expect(await part.text()).toBe('cde');
  });

  it('a range with another If-Range gets the whole file', async () => {
    const { id, download: link } = await upload(letters);
    const etag = (await download(link.url)).headers.get('etag')!;
    const resume = { range: 'bytes=8-', 'if-range': etag };
    expect(await text(await download(link.url, resume))).toEqual({ status: 206, text: 'ij' });
    await admin.changeAsset(id, { content: { text: 'ABCDEFGHIJ' } });
    expect(await text(await download(link.url, resume))).toEqual({ status: 200, text: 'ABCDEFGHIJ' });
  });

  it('a range outside the file gets 416 and the size of the file', async () => {
    const { download: link } = await upload(letters);
    const response = await download(link.url, { range: 'bytes=10-' });
    expect(response.status).toBe(416);
    expect(response.headers.get('content-range')).toBe('bytes */10');
  });

  it.each([
    ['bytes=0-', { start: 0, end: 10 }],
    ['bytes=0-0', { start: 0, end: 1 }],
    ['bytes=5-999', { start: 5, end: 10 }],
    ['bytes=-3', { start: 7, end: 10 }],
    ['bytes=-99', { start: 0, end: 10 }],
    ['bytes=-0', 'unsatisfiable'],
    ['bytes=10-', 'unsatisfiable'],
    ['bytes=4-3', 'whole'],
    ['bytes=0-1,3-4', 'whole'],
    ['bytes=-', 'whole'],
    ['items=0-1', 'whole'],
  ] as const)('the range %s of ten bytes is %o', (header, range) => {
    expect(parseRange(header, 10)).toEqual(range);
  });

  it('HEAD has no body, and If-None-Match with the ETag gets 304', async () => {
    const { download: link } = await upload({ content: { seed: 1, size: 4 * 2 ** 30 } });
    const head = await download(link.url, {}, 'HEAD');
    expect(head.headers.get('content-length')).toBe(String(4 * 2 ** 30));
    expect(await head.text()).toBe('');
    expect((await download(link.url, { 'if-none-match': head.headers.get('etag')! })).status).toBe(304);
  });
});

describe('generated bytes', () => {
  const size = 4 * 2 ** 30;

  it('generated bytes are the same from any offset, in files of any size', async () => {
    const { download: link } = await upload({ content: { seed: 7, size } });
    for (const start of [0, 1, 16, 1_000_003, 2 ** 31 - 5, size - 999_999]) {
      const end = Math.min(size, start + 999_999);
      const response = await download(link.url, { range: `bytes=${start}-${end - 1}` });
      expect(Buffer.from(await response.arrayBuffer()).equals(bytesOf(7, start, end)), String(start)).toBe(true);
    }
    expect(bytesOf(7, 1_000_003, 1_000_100)).toEqual(bytesOf(7, 1_000_000, 1_000_200).subarray(3, 100));
  });

  it('generated bytes follow the documented formula', () => {
    const key = createHash('sha256').update('7').digest().subarray(0, 16);
    const tile = createCipheriv('aes-128-ctr', key, Buffer.alloc(16)).update(Buffer.alloc(2 ** 18));
    const bytes = bytesOf(7, 0, 1_000_000);
    const byte = (p: number) => tile[((p % 2 ** 18) + 4099 * Math.floor(p / 2 ** 18)) % 2 ** 18];
    expect(bytes.every((value, p) => value === byte(p))).toBe(true);
    expect(bytesOf(7, 2 ** 40 + 3, 2 ** 40 + 5)).toEqual(Buffer.from([byte(2 ** 40 + 3)!, byte(2 ** 40 + 4)!]));
  });

  it('bytes are generated only as fast as they are read', async () => {
    const { id, download: link } = await upload({ content: { seed: 7, size } });
    const abort = new AbortController();
    const response = await fetch(link.url, { headers: { referer: library.appUrl }, signal: abort.signal });
    await response.body!.getReader().read();
    const made = async () => (await admin.requests({ assetId: id, endpoint: 'media' }))[0]!.bytes;
    const first = await made();
    for (let i = 0; i < 50; i++) await made();
    expect(await made()).toBeLessThan(first + 64 * 2 ** 20);
    abort.abort();
  });
});
