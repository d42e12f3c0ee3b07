import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { basic, connect, type Library, startTestLibrary } from '../support/library.ts';

let library: Library;
let bearer: string;
const errors: object[] = [];

beforeAll(async () => {
  const log = (line: object) => 'error' in line && errors.push(line);
  ({ library } = await startTestLibrary({ content: { synthetic: 1000 }, log }));
  bearer = (await connect(library)).access_token;
});
afterAll(() => library.close());

const piece = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 20 }),
  fc.constantFrom('ast_1_3', 'cmp_synthetic_1', 'original', '%00', '..', '%', '%ff', 'null', '[]', '-1', '1e9', 'NaN'),
);
const encoded = piece.map((text) => (/^%/.test(text) ? text : encodeURIComponent(text.toWellFormed())));
const path = fc.oneof(
  fc.constantFrom('/api/v1/me', '/oauth/authorize', '/sign-in', '/profile', '/'),
  encoded.map((id) => `/api/v1/assets/${id}`),
  encoded.map((id) => `/api/v1/assets/${id}/transcript`),
  encoded.map((id) => `/api/v1/companies/${id}/assets`),
  encoded.map((id) => `/media/${id}/original`),
  fc.tuple(encoded, encoded, encoded).map(([hop, left, id]) => `/hop/${hop}/${left}/media/${id}/mp4`),
  fc.array(encoded, { maxLength: 5 }).map((pieces) => `/${pieces.join('/')}`),
);
const name = fc.constantFrom(
  ...['limit', 'cursor', 'since', 'assetType', 'projectId', 'format', 'expires', 'signature', 'client_id', 'state'],
  ...[
    'redirect_uri',
    'next',
    'email',
    'password',
    'csrf',
    'grant_type',
    'code',
    'code_verifier',
    'refresh_token',
    'token',
  ],
);
const fields = fc.array(
  fc.tuple(
    name,
    piece.map((text) => text.toWellFormed()),
  ),
  { maxLength: 6 },
);
const header = fc.string({ minLength: 1, maxLength: 30 }).map((text) => text.replace(/[^\x21-\x7e]/g, 'x'));

it('no request makes the library answer 500', async () => {
  await fc.assert(
    fc.asyncProperty(path, fields, header, fc.boolean(), async (path, query, odd, isKnown) => {
      const authorization = isKnown ? `Bearer ${bearer}` : odd;
      const response = await fetch(`${library.apiUrl}${path}?${new URLSearchParams(query)}`, {
        redirect: 'manual',
        headers: { authorization, range: odd, 'if-range': odd, 'if-none-match': odd, referer: odd, cookie: odd },
      });
      await response.arrayBuffer();
      expect(response.status, path).toBeLessThan(500);
    }),
    { numRuns: 200 },
  );
  expect(errors).toEqual([]);
});

it('no form or JSON body makes the library answer 500, and revoke always answers 200', async () => {
  const target = fc.constantFrom(
    '/api/oauth/token',
    '/api/oauth/revoke',
    '/sign-in',
    '/sign-out',
    '/profile/disconnect',
  );
  const body = fc.oneof(
    fields.map((fields) => ({ type: 'application/x-www-form-urlencoded', text: String(new URLSearchParams(fields)) })),
    fc.json().map((text) => ({ type: 'application/json', text })),
    fc.dictionary(name, fc.jsonValue()).map((value) => ({ type: 'application/json', text: JSON.stringify(value) })),
    fc.string().map((text) => ({ type: 'application/json', text })),
    fc.string().map((text) => ({ type: 'text/plain', text })),
    fc.string().map((text) => ({ type: 'x/y', text })),
  );
  await fc.assert(
    fc.asyncProperty(target, body, fc.boolean(), header, async (path, { type, text }, isKnown, odd) => {
      const response = await fetch(library.apiUrl + path, {
        method: 'POST',
        redirect: 'manual',
        headers: { 'content-type': type, authorization: isKnown ? basic(library) : `Basic ${odd}` },
        body: text,
      });
      const answer = await response.text();
      expect(response.status, path).toBeLessThan(500);
      if (path.endsWith('revoke')) expect([response.status, answer]).toEqual([200, '{}']);
      if (path.endsWith('token')) expect([400, 401]).toContain(response.status);
    }),
    { numRuns: 200 },
  );
  expect(errors).toEqual([]);
});
