import { once } from 'node:events';
import { connect as openSocket } from 'node:net';
import { request as rawRequest } from 'undici';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  type Admin,
  connect,
  type DetailedAsset,
  type Library,
  postToken,
  startTestLibrary,
  type TokenAnswer,
} from '../support/library.ts';

let library: Library;
let admin: Admin;
let tokens: TokenAnswer;
let companyId: string;
let asset: DetailedAsset;

const CONTENT = 'x'.repeat(1_000_000);

beforeAll(async () => {
  ({ library, admin } = await startTestLibrary());
  companyId = (await admin.addCompany({ name: 'First', userIds: ['usr_ada'] })).id;
  tokens = await connect(library);
  const { id } = await admin.addAsset({
    companyId,
    name: 'x.bin',
    mimeType: 'application/octet-stream',
    assetType: 'documents',
    content: { text: CONTENT },
  });
  asset = ((await (await api(`/assets/${id}`)).json()) as { asset: DetailedAsset }).asset;
});
afterEach(() => admin.clearFaults());
afterAll(() => library.close());

function api(path: string): Promise<Response> {
  return fetch(`${library.apiUrl}/api/v1${path}`, { headers: { authorization: `Bearer ${tokens.access_token}` } });
}

function download(headers: Record<string, string> = {}, init: RequestInit = {}): Promise<Response> {
  return fetch(asset.download.url, { ...init, headers: { referer: library.appUrl, ...headers } });
}

/** The bytes that arrive before the connection breaks. */
async function received(response: Response): Promise<number> {
  let bytes = 0;
  try {
    for await (const chunk of response.body!) bytes += chunk.length;
  } catch {
    return bytes;
  }
  throw new Error('the body was whole');
}

describe('fault rules', () => {
  it('a rule skips requests, then affects requests, of its endpoint only', async () => {
    await admin.setFaults({ endpoint: 'me', status: 503, skip: 1, times: 2 });
    const statuses = [];
    for (let i = 0; i < 4; i++) statuses.push((await api('/me')).status, (await api(`/assets/${asset.id}`)).status);
    expect(statuses).toEqual([200, 200, 503, 200, 503, 200, 200, 200]);
  });

  it('a rule can select one asset or one company', async () => {
    const other = await admin.addAsset({ companyId, name: 'y', mimeType: 'text/plain', assetType: 'documents' });
    await admin.setFaults({ endpoint: 'asset', assetId: other.id, status: 500 });
    expect([(await api(`/assets/${asset.id}`)).status, (await api(`/assets/${other.id}`)).status]).toEqual([200, 500]);

    const elsewhere = await admin.addCompany({ name: 'Else', userIds: ['usr_ada'] });
    await admin.setFaults({ endpoint: '*', companyId, status: 500 });
    expect((await api(`/companies/${companyId}/assets`)).status).toBe(500);
    expect((await api(`/companies/${elsewhere.id}/assets`)).status).toBe(200);
    expect((await api(`/assets/${asset.id}`)).status).toBe(500);
    expect((await download()).status).toBe(500);
  });

  it('a rule can select the user of the access token', async () => {
    await admin.addUser({ id: 'usr_other', name: 'Other', email: 'other@example.com' });
    await admin.setAccess(companyId, 'usr_other', true);
    const other = (await connect(library, 'usr_other')).access_token;
    await admin.setFaults({ endpoint: '*', userId: 'usr_other', retryAfter: 3 });
    const asOther = (path: string) =>
      fetch(`${library.apiUrl}/api/v1${path}`, { headers: { authorization: `Bearer ${other}` } });
    for (const path of ['/me', `/companies/${companyId}/assets`, `/assets/${asset.id}`]) {
      expect([(await asOther(path)).status, (await api(path)).status], path).toEqual([429, 200]);
    }
    expect((await download()).status).toBe(200);
  });

  it('an invalid fault rule is refused', async () => {
    await expect(admin.addFault({ endpoint: 'me', statuss: 500 } as never)).rejects.toThrow('400');
  });

  it('a rule sets status, headers and body', async () => {
    await admin.setFaults({ endpoint: 'me', retryAfter: 3 });
    const limited = await api('/me');
    expect([limited.status, limited.headers.get('retry-after')]).toEqual([429, '3']);
    await admin.setFaults({ endpoint: 'me', status: 200, body: { user: null }, headers: { 'x-odd': 'yes' } });
    const odd = await api('/me');
    expect([odd.headers.get('x-odd'), await odd.json()]).toEqual(['yes', { user: null }]);
  });

  it.each([[null], [[]], [7], ['{'], ['']])('a rule sets the body %j', async (body) => {
    await admin.setFaults({ endpoint: 'me', status: 503, body });
    const answer = await api('/me');
    expect([answer.status, await answer.text()]).toEqual([503, typeof body === 'string' ? body : JSON.stringify(body)]);
  });

  it('a request gets one answer only, even if the answer of a rule stalls', async () => {
    await admin.clearRequests();
    await admin.setFaults({ endpoint: 'me', status: 503, body: 'text', stallAfter: 2 });
    const abort = new AbortController();
    const headers = { authorization: `Bearer ${tokens.access_token}` };
    const answer = await fetch(`${library.apiUrl}/api/v1/me`, { headers, signal: abort.signal });
    const chunk = await answer.body!.getReader().read();
    expect(Buffer.from(chunk.value!).toString()).toBe('te');
    abort.abort();
    expect(await admin.requests()).toMatchObject([{ endpoint: 'me', status: 503 }]);
  });

  it('a fault rule delays a request', async () => {
    await admin.setFaults({ endpoint: 'me', latency: 200 });
    const start = performance.now();
    await api('/me');
    expect(performance.now() - start).toBeGreaterThan(190);
  });
});

describe('the last cursor', () => {
  it.each(['absent', 'null', 'empty', 'repeat'] as const)(
    'a rule ends a listing with a cursor of the kind: %s',
    async (nextCursor) => {
      await admin.setFaults({ endpoint: 'assets', nextCursor });
      const page = (await (await api(`/companies/${companyId}/assets`)).json()) as { nextCursor?: string | null };
      if (nextCursor === 'repeat') {
        const next = await (await api(`/companies/${companyId}/assets?cursor=${page.nextCursor}`)).json();
        expect(next).toEqual({ assets: [], nextCursor: page.nextCursor });
      } else {
        expect(page.nextCursor).toBe({ absent: undefined, null: null, empty: '' }[nextCursor]);
      }
    },
  );
});

describe('faults of bodies', () => {
  it('a body is cut after the exact number of bytes', async () => {
    await admin.setFaults({ endpoint: 'media', cutAfter: 300_000 });
    expect(await received(await download())).toBe(300_000);
    expect(await received(await download({ range: 'bytes=10-' }))).toBe(300_000);
    expect((await (await download({ range: 'bytes=0-9' })).text()).length).toBe(10);
  });

  it('a body is cut by a reset', async () => {
    await admin.setFaults({ endpoint: 'media', cutAfter: 1000, reset: true });
    const whole = async () => (await download()).text();
    await expect(whole()).rejects.toMatchObject({ cause: { code: 'ECONNRESET' } });
  });

  it('a JSON body can be cut', async () => {
    await admin.setFaults({ endpoint: 'me', cutAfter: 5 });
    expect(await received(await api('/me'))).toBe(5);
  });

  it('a body stalls after the exact number of bytes, and the connection stays open', async () => {
    await admin.setFaults({ endpoint: 'media', stallAfter: 1000 });
    const { pathname, search, host } = new URL(asset.download.url);
    const socket = openSocket(Number(host.split(':')[1]), '127.0.0.1');
    socket.write(`GET ${pathname}${search} HTTP/1.1\r\nHost: ${host}\r\nReferer: ${library.appUrl}\r\n\r\n`);
    let text = '';
    while (!text.includes('\r\n\r\n') || text.split('\r\n\r\n')[1]!.length < 1000) {
      text += (await once(socket, 'data'))[0];
    }
    for (let i = 0; i < 20; i++) await api('/me');
    expect(text.split('\r\n\r\n')[1]).toBe('x'.repeat(1000));
    expect(socket.destroyed).toBe(false);
    socket.destroy();
  });

  it('bytesPerSecond limits the rate of a body', async () => {
    await admin.setFaults({ endpoint: 'media', bytesPerSecond: 1000 });
    const start = performance.now();
    expect((await (await download({ range: 'bytes=0-299' })).text()).length).toBe(300);
    expect(performance.now() - start).toBeGreaterThan(190);
  });

  it('a file can be shorter or longer than the API says, in a correct answer', async () => {
    await admin.setFaults({ endpoint: 'media', shortBy: 1 });
    const short = await download();
    expect(short.headers.get('content-length')).toBe('999999');
    expect((await short.text()).length).toBe(999_999);
    await admin.setFaults({ endpoint: 'media', longBy: 5 });
    expect((await (await download()).arrayBuffer()).byteLength).toBe(1_000_005);
    const range = await download({ range: 'bytes=999998-' });
    expect([range.headers.get('content-range'), (await range.arrayBuffer()).byteLength]).toEqual([
      'bytes 999998-1000004/1000005',
      7,
    ]);
  });

  it('ignoreRange answers a range request with the whole file', async () => {
    await admin.setFaults({ endpoint: 'media', ignoreRange: true });
    const response = await download({ range: 'bytes=5-' });
    expect([response.status, (await response.text()).length]).toEqual([200, 1_000_000]);
  });

  it('a body can be chunked, compressed, or of a wrong type', async () => {
    await admin.setFaults({ endpoint: 'media', chunked: true });
    const chunked = await download();
    expect(chunked.headers.get('content-length')).toBeNull();
    expect((await chunked.text()).length).toBe(1_000_000);

    await admin.setFaults({ endpoint: '*', contentEncoding: 'gzip', wrongType: true });
    const { headers, body } = await rawRequest(asset.download.url, { headers: { referer: library.appUrl } });
    expect(headers).toMatchObject({ 'content-encoding': 'gzip', 'content-type': 'text/html; charset=utf-8' });
    expect((await body.arrayBuffer()).byteLength).toBeLessThan(10_000);
    expect(await (await download()).text()).toBe(CONTENT);
    expect(await (await api('/me')).json()).toMatchObject({ user: { id: 'usr_ada' } });
  });
});

describe('faults of links', () => {
  it('expireLinks answers like an expired link', async () => {
    await admin.setFaults({ endpoint: 'media', expireLinks: true, times: 1 });
    const expired = await download();
    expect([expired.status, await expired.json()]).toMatchObject([403, { error: 'link_expired' }]);
    expect((await download()).status).toBe(200);
  });

  it('a link redirects several times, and the last answer has the other effects of the rule', async () => {
    await admin.setFaults({ endpoint: 'media', redirect: 3, times: 1, shortBy: 1 });
    let url = asset.download.url;
    const statuses = [];
    for (let status = 0; status !== 200; ) {
      const response = await fetch(url, { redirect: 'manual', headers: { referer: library.appUrl } });
      status = response.status;
      statuses.push(status);
      if (status === 302) url = response.headers.get('location')!;
      else expect((await response.text()).length).toBe(999_999);
    }
    expect(statuses).toEqual([302, 302, 302, 200]);
    expect((await fetch(url)).status).toBe(403);
  });
});

it('dropAnswer carries out the request and drops its answer', async () => {
  const { refresh_token } = await connect(library);
  await admin.setFaults({ endpoint: 'token', dropAnswer: true, times: 1 });
  await expect(postToken(library, { grant_type: 'refresh_token', refresh_token })).rejects.toThrow();
  expect((await postToken(library, { grant_type: 'refresh_token', refresh_token })).status).toBe(400);
});

it('the request log contains no secrets', async () => {
  await admin.clearRequests();
  await (await download({ range: 'bytes=1-2', 'if-range': '"x"' })).arrayBuffer();
  await api(`/companies/${companyId}/assets?limit=1`);
  await api('/me');
  expect(await admin.requests()).toEqual([
    {
      at: expect.any(Number),
      endpoint: 'media',
      method: 'GET',
      path: `/media/${asset.id}/original`,
      assetId: asset.id,
      referer: library.appUrl,
      hasAuthorization: false,
      range: 'bytes=1-2',
      ifRange: '"x"',
      status: 200,
      bytes: 1_000_000,
    },
    expect.objectContaining({ endpoint: 'assets', companyId, hasAuthorization: true, status: 200 }),
    expect.objectContaining({ endpoint: 'me', path: '/api/v1/me', bytes: expect.any(Number) }),
  ]);
  expect(JSON.stringify(await admin.requests())).not.toMatch(/signature|svc._/);
});
