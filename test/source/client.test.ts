import { readFile } from 'node:fs/promises';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, LookupFunction } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Rejected, RetryLater } from '../../src/floor/errors.ts';
import { LibraryClient } from '../../src/source/client.ts';
import { createAgent, HttpError, isTemporary } from '../../src/source/http.ts';
import { newCertificates } from '../support/certificates.ts';
import { type Admin, connect, type Library, startTestLibrary } from '../support/library.ts';
import { freePort } from '../support/ports.ts';
import { answer, type Bare, hangUp, raw, startBare } from './bare.ts';

let library: Library;
let admin: Admin;
let bare: Bare;
let token: string;
const agent = createAgent({ connections: 10 });
const signal = new AbortController().signal;

beforeAll(async () => {
  ({ library, admin } = await startTestLibrary());
  bare = await startBare();
  // A user without companies is disconnected, so this company stays.
  await newCompany();
  token = (await connect(library)).access_token;
});
afterEach(() => admin.clearFaults());
afterAll(async () => {
  await agent.destroy();
  await bare.close();
  await library.close();
});

const client = () => new LibraryClient({ apiUrl: library.apiUrl, dispatcher: agent });
const odd = () => new LibraryClient({ apiUrl: bare.url, dispatcher: agent });
const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => {
      throw new Error('it was no failure');
    },
    (error) => error,
  );

let companies = 0;
/** A company with this number of assets, the newest first. */
async function newCompany(count = 0) {
  const company = await admin.addCompany({ name: `Company ${++companies}`, userIds: ['usr_ada'] });
  const ids: string[] = [];
  for (let i = 0; i < count; i++) {
    const asset = await admin.addAsset({
      companyId: company.id,
      name: `${i}.bin`,
      mimeType: 'application/octet-stream',
      assetType: 'documents',
      uploadDate: 1_700_000_000_000 - i,
    });
    ids.push(asset.id);
  }
  return { id: company.id, ids };
}
const newFilm = async (more: object = {}) => {
  const { id: companyId } = await newCompany();
  return admin.addAsset({ companyId, name: 'film.mp4', mimeType: 'video/mp4', assetType: 'videos', ...more });
};

describe('/me', () => {
  it('/me says who connected and which companies are readable', async () => {
    const { id } = await newCompany();
    const me = await client().me({ token, signal });
    expect(me).toMatchObject({
      user: { id: 'usr_ada', name: expect.any(String), email: expect.any(String) },
      problems: [],
    });
    expect(me.companies.map((company) => company.id)).toContain(id);
    await admin.setAccess(id, 'usr_ada', false);
    expect((await client().me({ token, signal })).companies.map((company) => company.id)).not.toContain(id);
  });

  it('/me returns its readable companies, and names the others', async () => {
    const companies = [
      { id: 'c1', name: 'One' },
      { name: 'without id' },
      { id: 'c2', name: 5 },
      null,
      { id: 'x'.repeat(1601) },
    ];
    bare.answer(answer(200, { user: { id: 'u' }, companies }));
    expect(await odd().me({ token, signal })).toEqual({
      user: { id: 'u', name: '', email: '' },
      companies: [
        { id: 'c1', name: 'One' },
        { id: 'c2', name: 'c2' },
      ],
      problems: [
        'company "without id" was skipped: id: Invalid input: expected string, received undefined',
        'company "" was skipped: answer: Invalid input: expected object, received null',
        `company "${'x'.repeat(100)}" was skipped: id: expected an id of at most 1600 bytes`,
      ],
    });
  });

  it('/me without a valid name or e-mail address has none', async () => {
    bare.answer(answer(200, { user: { id: 'u', name: 5, email: [] }, companies: [] }));
    expect(await odd().me({ token, signal })).toMatchObject({ user: { id: 'u', name: '', email: '' } });
  });

  it('names in /me are stored without characters that a database cannot hold', async () => {
    bare.answer(
      answer(
        200,
        '{"user":{"id":"u","name":"A\\u0000da","email":"\\ud800"},"companies":[{"id":"c","name":"\\u0000C"}]}',
      ),
    );
    const me = await odd().me({ token, signal });
    expect(me.user).toEqual({ id: 'u', name: 'Ada', email: '\ufffd' });
    expect(me.companies).toEqual([{ id: 'c', name: 'C' }]);
  });

  it('/me fails with the status if the token is refused', async () => {
    const error = await failureOf(client().me({ token: 'svca_wrong', signal }));
    expect(error).toBeInstanceOf(HttpError);
    expect(error.status).toBe(401);
  });
});

describe('a listing', () => {
  async function listAll(companyId: string, since?: number): Promise<string[]> {
    const ids: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await client().listAssets({ token, signal, companyId, cursor, since });
      expect(page.assets.length).toBeLessThanOrEqual(100);
      ids.push(...page.assets.map((asset) => asset.id));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    return ids;
  }

  it('a listing comes in pages of a hundred assets, newest first, to its end', { tags: 'slow' }, async () => {
    const { id, ids } = await newCompany(230);
    await admin.clearRequests();
    expect(await listAll(id)).toEqual(ids);
    expect(await admin.requests({ endpoint: 'assets' })).toHaveLength(3);
  });

  it('a listing ends if nextCursor is null, absent or empty', async () => {
    const { id, ids } = await newCompany(3);
    for (const nextCursor of ['null', 'absent', 'empty'] as const) {
      await admin.setFaults({ endpoint: 'assets', nextCursor });
      const page = await client().listAssets({ token, signal, companyId: id });
      expect(page.nextCursor).toBeUndefined();
      expect(page.assets.map((asset) => asset.id)).toEqual(ids);
    }
  });

  it('a listing since a time has only assets that were uploaded later', async () => {
    const { id, ids } = await newCompany(5);
    expect(await listAll(id, 1_700_000_000_000 - 3)).toEqual(ids.slice(0, 3));
    expect(await listAll(id, 0)).toEqual(ids);
  });

  it('a listing can be limited to one type or one project, but not to both', async () => {
    const { id, ids } = await newCompany(2);
    const project = await admin.addProject({ companyId: id, name: 'Spring' });
    await admin.changeAsset(ids[0]!, { assetType: 'brand assets' });
    await admin.changeAsset(ids[1]!, { projectId: project.id });
    const list = async (filter: object) =>
      (await client().listAssets({ token, signal, companyId: id, ...filter })).assets.map((asset) => asset.id);
    expect(await list({ assetType: 'brand assets' })).toEqual([ids[0]]);
    expect(await list({ projectId: project.id })).toEqual([ids[1]]);
    expect(await list({ assetType: 'brand assets', projectId: project.id })).toEqual([ids[0]]);
  });

  it('a listing has the time of the library', async () => {
    const { id } = await newCompany();
    const before = Date.now();
    const { date } = await client().listAssets({ token, signal, companyId: id });
    expect(date).toBeGreaterThan(before - 5000);
    expect(date).toBeLessThanOrEqual(Date.now());
    bare.answer(answer(200, { assets: [] }, { date: 'Wed, 21 Oct 2015 07:28:00 GMT' }));
    expect((await odd().listAssets({ token, signal, companyId: 'c' })).date).toBe(Date.UTC(2015, 9, 21, 7, 28));
  });

  it('a listing has its valid assets, and names what is wrong with the others', async () => {
    const { id, ids } = await newCompany(3);
    await admin.changeAsset(ids[1]!, { override: { size: 'five' } });
    const page = await client().listAssets({ token, signal, companyId: id });
    expect(page.assets.map((asset) => asset.id)).toEqual([ids[0], ids[2]]);
    expect(page.broken).toMatchObject([
      { problem: expect.stringMatching(/^size: /), item: { id: ids[1], size: 'five' } },
    ]);
  });

  it('a listing keeps assets without a readable id apart from the others', async () => {
    bare.answer(answer(200, { assets: [{ id: 5 }, null, 'text', { name: 'x' }, { id: 'a' }] }));
    const page = await odd().listAssets({ token, signal, companyId: 'c' });
    expect(page.assets).toEqual([{ id: 'a' }]);
    expect(page.broken.map(({ item }) => item)).toEqual([{ id: 5 }, null, 'text', { name: 'x' }]);
    expect(page.broken.map(({ problem }) => problem.split(':')[0])).toEqual(['id', 'answer', 'answer', 'id']);
  });

  it('a listing keeps unknown fields', async () => {
    const { id, ids } = await newCompany(1);
    await admin.changeAsset(ids[0]!, { override: { status: 'frozen', assetType: 'holograms', mood: { of: 'x' } } });
    const page = await client().listAssets({ token, signal, companyId: id });
    expect(page.assets).toMatchObject([{ status: 'frozen', assetType: 'holograms', mood: { of: 'x' } }]);
  });

  it('a listing that breaks the schema is rejected with the name of the field', async () => {
    for (const [body, field] of [
      [{}, 'assets'],
      [{ assets: [], nextCursor: 7 }, 'nextCursor'],
      [[], 'answer'],
    ] as const) {
      bare.answer(answer(200, body));
      const error = await failureOf(odd().listAssets({ token, signal, companyId: 'c' }));
      expect(error).toBeInstanceOf(Rejected);
      expect(error.message).toContain(
        `list the assets of company c: the library's answer breaks the API schema: ${field}:`,
      );
    }
  });

  it('a listing of a company whose id must be escaped has the assets of this company', async () => {
    bare.answer(answer(200, { assets: [] }));
    await odd().listAssets({ token, signal, companyId: 'a/b?c#d e', cursor: 'x&limit=1' });
    expect(bare.requests[0]!.path).toBe('/api/v1/companies/a%2Fb%3Fc%23d%20e/assets?limit=100&cursor=x%26limit%3D1');
  });
});

describe('an asset', () => {
  it('an asset comes with fresh links', async () => {
    const { id } = await newFilm();
    const asset = await client().getAsset({ token, signal, assetId: id });
    expect(asset.download).toMatchObject({ url: expect.stringContaining('signature='), filename: 'film.mp4' });
  });

  it('an asset that breaks the schema is rejected with the name of the field', async () => {
    const { id } = await newFilm({ overrideDetail: { asset: { download: { url: 5 } } } });
    const error = await failureOf(client().getAsset({ token, signal, assetId: id }));
    expect(error).toBeInstanceOf(Rejected);
    expect(error.message).toContain(
      `read asset ${id}: the library's answer breaks the API schema: asset.download.url:`,
    );
  });

  it('an asset with another id than requested is refused', async () => {
    const { id } = await newFilm({ overrideDetail: { asset: { id: 'another' } } });
    const error = await failureOf(client().getAsset({ token, signal, assetId: id }));
    expect(error.message).toBe(`read asset ${id}: the library answered with another asset, "another"`);
  });

  it('an asset that does not exist is an error with status 404', async () => {
    expect(await failureOf(client().getAsset({ token, signal, assetId: 'nobody' }))).toMatchObject({ status: 404 });
  });
});

describe('a transcript', () => {
  const words = [{ word: 'Hello', start: 0, end: 0.5 }];
  const spoken = { language: 'en', durationSec: 1, text: 'Hello', vtt: 'WEBVTT\n\nHello', words };
  const get = (assetId: string) => client().getTranscript({ token, signal, assetId });

  it('a transcript is fetched once, as JSON, and kept exactly as served', async () => {
    const { id } = await newFilm({ transcript: spoken });
    await admin.clearRequests();
    const found = await get(id);
    expect(found).toMatchObject({ kind: 'transcript', vtt: spoken.vtt, text: 'Hello' });
    const served = await fetch(`${library.apiUrl}/api/v1/assets/${id}/transcript?format=json`, {
      headers: { authorization: `Bearer ${token}` },
    });
    expect(found).toHaveProperty('json', await served.text());
    expect(await admin.requests({ endpoint: 'transcript' })).toHaveLength(2);
  });

  it('a transcript may be empty', async () => {
    const { id } = await newFilm({ transcript: { ...spoken, words: null } });
    expect(await get(id)).toMatchObject({ kind: 'transcript', text: 'Hello' });
  });

  it('a transcript of a video without speech is `no speech`', async () => {
    const { id } = await newFilm({ transcript: { noSpeech: true } });
    expect(await get(id)).toEqual({ kind: 'no speech' });
  });

  it('a transcript that does not exist yet is `not yet`, not an error', async () => {
    const { id } = await newFilm();
    expect(await get(id)).toEqual({ kind: 'not yet' });
  });

  it('the captions and text that a transcript lacks are requested separately', async () => {
    bare.answer(
      answer(200, { assetId: 'a', language: 'en' }),
      answer(200, 'WEBVTT\n', { 'content-type': 'text/vtt' }),
      answer(200, 'Hello', { 'content-type': 'text/plain' }),
    );
    expect(await odd().getTranscript({ token, signal, assetId: 'a' })).toEqual({
      kind: 'transcript',
      json: '{"assetId":"a","language":"en"}',
      vtt: 'WEBVTT\n',
      text: 'Hello',
    });
    expect(bare.requests.map(({ path }) => path.split('=')[1])).toEqual(['json', 'vtt', 'txt']);
  });

  it('a transcript is refused if its captions might be truncated without notice', async () => {
    bare.answer(
      answer(200, { assetId: 'a', text: 'Hello' }),
      raw('HTTP/1.1 200 OK\r\ncontent-type: text/vtt\r\n\r\nWEBVTT\n\n00:00'),
    );
    const failure = await failureOf(odd().getTranscript({ token, signal, assetId: 'a' }));
    expect(failure.message).toMatch(/transcript of asset a: the length of the vtt is unknown/);
  });

  it('a transcript is `no speech` if the captions are answered with noSpeech', async () => {
    bare.answer(
      answer(200, { assetId: 'a' }),
      answer(200, { assetId: 'a', noSpeech: true }, { 'content-type': 'application/json; charset=utf-8' }),
    );
    expect(await odd().getTranscript({ token, signal, assetId: 'a' })).toEqual({ kind: 'no speech' });
  });

  it('a transcript is `not yet` if its captions do not exist yet', async () => {
    bare.answer(answer(200, { assetId: 'a', text: 'Hello' }), answer(404));
    expect(await odd().getTranscript({ token, signal, assetId: 'a' })).toEqual({ kind: 'not yet' });
  });

  it('a transcript keeps empty captions', async () => {
    bare.answer(answer(200, { assetId: 'a', text: '', vtt: '' }));
    expect(await odd().getTranscript({ token, signal, assetId: 'a' })).toMatchObject({ vtt: '', text: '' });
    expect(bare.requests).toHaveLength(1);
  });

  it('a transcript of another asset, or with a field that breaks the schema, is refused', async () => {
    bare.answer(answer(200, { assetId: 'b', text: 'x', vtt: 'y' }));
    expect((await failureOf(odd().getTranscript({ token, signal, assetId: 'a' }))).message).toContain(
      'for another asset',
    );
    bare.answer(answer(200, { assetId: 'a', vtt: 5 }));
    const error = await failureOf(odd().getTranscript({ token, signal, assetId: 'a' }));
    expect(error).toBeInstanceOf(Rejected);
    expect(error.message).toContain('vtt:');
  });
});

describe('a library that asks the client to wait', () => {
  const read = () => failureOf(client().me({ token, signal }));

  it('429 or 503 with Retry-After, in seconds or as a date, makes the client wait', async () => {
    for (const status of [429, 503]) {
      const began = Date.now();
      for (const retryAfter of [60, new Date(began + 61_000).toUTCString()]) {
        await admin.setFaults({ endpoint: 'me', status, retryAfter });
        await admin.clearRequests();
        const error = await read();
        expect(error).toBeInstanceOf(RetryLater);
        expect(error.scope).toBe('connection');
        // Meanwhile the date has come closer.
        expect(error.waitMs).toBeGreaterThan(59_000 - (Date.now() - began));
        expect(error.waitMs).toBeLessThan(75_000);
        expect(await admin.requests({ endpoint: 'me' })).toHaveLength(1);
      }
    }
  });

  it('429 without Retry-After makes the client wait for a default time', async () => {
    await admin.setFaults({ endpoint: 'me', status: 429 });
    const error = await read();
    expect(error).toBeInstanceOf(RetryLater);
    expect(error.waitMs).toBeGreaterThan(20_000);
  });
});

describe('a temporary error', () => {
  const tries = async () => (await admin.requests({ endpoint: 'me' })).length;

  it('a temporary error such as 5xx or a dropped connection is retried', { tags: 'slow' }, async () => {
    for (const fault of [{ status: 500 }, { status: 503 }, { dropAnswer: true }, { cutAfter: 5 }]) {
      await admin.setFaults({ endpoint: 'me', times: 2, ...fault });
      await admin.clearRequests();
      expect((await client().me({ token, signal })).user.id).toBe('usr_ada');
      expect(await tries()).toBe(3);
    }
  });

  it('a connection that closes within a chunk is retried', async () => {
    bare.answer(raw('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n9\r\n{"us'));
    expect(isTemporary(await failureOf(odd().me({ token, signal })))).toBe(true);
    expect(bare.requests).toHaveLength(3);
  });

  it('a temporary error that persists is reported after three tries', { tags: 'slow' }, async () => {
    await admin.setFaults({ endpoint: 'me', status: 502 });
    await admin.clearRequests();
    const error = await failureOf(client().me({ token, signal }));
    expect(error).toMatchObject({ name: 'HttpError', status: 502 });
    expect(isTemporary(error)).toBe(true);
    expect(await tries()).toBe(3);
    bare.answer(hangUp);
    expect(isTemporary(await failureOf(odd().me({ token, signal })))).toBe(true);
    expect(bare.requests).toHaveLength(3);
  });

  it('a request is not retried after a 4xx or an invalid answer', async () => {
    for (const body of ['<html>', '', '{"user":', '\ufeff']) {
      bare.answer(answer(200, body));
      expect((await failureOf(odd().me({ token, signal }))).message).toBe("read /me: the library's answer is not JSON");
      expect(bare.requests).toHaveLength(1);
    }
    for (const status of [302, 400, 401, 403, 404]) {
      bare.answer(answer(status, ''));
      expect(await failureOf(odd().me({ token, signal }))).toMatchObject({ status });
      expect(bare.requests).toHaveLength(1);
    }
  });

  it('a network error is reported as such if nothing listens', async () => {
    const nobody = new LibraryClient({ apiUrl: `http://127.0.0.1:${await freePort()}`, dispatcher: agent });
    expect(isTemporary(await failureOf(nobody.me({ token, signal })))).toBe(true);
  });

  it('a name server that does not answer is a temporary error', async () => {
    let lookups = 0;
    const lookup: LookupFunction = (_host, _options, done) => {
      lookups++;
      done(Object.assign(new Error('getaddrinfo EAI_AGAIN library.example'), { code: 'EAI_AGAIN' }), '');
    };
    const away = new LibraryClient({
      apiUrl: 'http://library.example',
      dispatcher: createAgent({ connections: 1, lookup }),
    });
    expect(isTemporary(await failureOf(away.me({ token, signal })))).toBe(true);
    expect(lookups).toBe(3);
  });

  it('a certificate that cannot be trusted at present is a temporary error', async () => {
    const { cert, key, clear } = await newCertificates();
    const server = createTlsServer({ cert: await readFile(cert), key: await readFile(key) }, () => {});
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const apiUrl = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const error = await failureOf(new LibraryClient({ apiUrl, dispatcher: agent }).me({ token, signal }));
    expect(error).toMatchObject({ code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' });
    expect(isTemporary(error)).toBe(true);
    server.close();
    await clear();
  });
});

describe('an abort', () => {
  it('an abort ends a request that waits for an answer or for its next try', async () => {
    for (const instead of [() => {}, answer(500)]) {
      bare.answer((request, response) => {
        instead(request, response);
        setImmediate(() => stop.abort(new Error('enough')));
      });
      const stop = new AbortController();
      await failureOf(odd().me({ token, signal: stop.signal }));
      expect(bare.requests.length).toBe(1);
    }
  });
});

describe('every request', () => {
  it('every request to the library has the token', async () => {
    bare.answer(answer(200, { user: { id: 'u' }, companies: [] }));
    await odd().me({ token: 'svca_x', signal });
    expect(bare.requests[0]!.headers.authorization).toBe('Bearer svca_x');
    // The client does not decode answers.
    expect(bare.requests[0]!.headers['accept-encoding']).toBe('identity');
  });

  it('a request stops reading an answer that does not end', async () => {
    bare.answer((_request, response) => {
      const more = () => {
        while (!response.destroyed && response.write(' '.repeat(1 << 20)));
      };
      response.on('drain', more);
      more();
    });
    expect((await failureOf(odd().me({ token, signal }))).message).toBe('read /me: the answer is larger than 64 MiB');
  });
});
