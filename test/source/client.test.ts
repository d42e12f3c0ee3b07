import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { Rejected } from '../../src/floor/errors.ts';
import { HttpError } from '../../src/source/http.ts';
import { answer } from './bare.ts';
import { newClientGround, signal } from './client-ground.ts';
import { failureOf } from './failure-of.ts';

const ground = await newClientGround();
const { admin, bare, token, client, odd, newCompany, newFilm } = ground;
afterEach(ground.reset);
afterAll(ground.close);

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
