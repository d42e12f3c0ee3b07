import { basic } from '../oauth.ts';
import { asked, body, forgiving, instead, json, ME, type Mutation, PROJECTS, REVOKE, status, TOKEN } from './faults.ts';

export const tokens: Mutation[] = [
  ...(
    [
      ['expires_in is another', { expires_in: 7200 }],
      ['expires_in is a string', { expires_in: '3600' }],
      ['the access token has another prefix', { access_token: 'at_x' }],
      ['the refresh token has another prefix', { refresh_token: 'rt_x' }],
      ['there is no refresh token', { refresh_token: undefined }],
      ['token_type is in small letters', { token_type: 'bearer' }],
      ['the scope is missing', { scope: undefined }],
    ] as const
  ).map(([breaks, change]) => ({
    check: 'token-response',
    breaks,
    fault: body(TOKEN, (tokens) => ({ ...tokens, ...change })),
  })),
  {
    check: 'form-and-json',
    breaks: 'JSON is refused',
    fault: instead(TOKEN, ({ headers }) =>
      headers['content-type']?.includes('json') ? json(415, { error: 'invalid_request' }) : undefined,
    ),
  },
  {
    check: 'form-and-json',
    breaks: 'forms are refused',
    fault: instead(TOKEN, ({ headers }) =>
      headers['content-type']?.includes('form') ? json(415, { error: 'invalid_request' }) : undefined,
    ),
  },
  {
    check: 'basic-and-body',
    breaks: 'credentials in the body are refused',
    fault: instead(TOKEN, ({ body }) =>
      body.includes('client_secret') ? json(401, { error: 'invalid_client' }) : undefined,
    ),
  },
  {
    check: 'client-authentication',
    breaks: 'any secret is accepted',
    fault: (world) =>
      asked(TOKEN, (it) => {
        it.headers.authorization = basic(world.client());
        const form = new URLSearchParams(it.body);
        form.delete('client_id');
        form.delete('client_secret');
        it.body = form.toString();
      })(),
  },
  { check: 'verifier-proves', breaks: 'any verifier will do', fault: forgiving },
  { check: 'verifier-required', breaks: 'the verifier is optional', fault: forgiving },
  { check: 'verifier-length', breaks: 'a verifier of any length will do', fault: forgiving },
  {
    check: 'verifier-length',
    breaks: 'a verifier of 128 characters is refused',
    fault: instead(TOKEN, ({ body }) =>
      (new URLSearchParams(body).get('code_verifier')?.length ?? 0) > 100 ? json(400, {}) : undefined,
    ),
  },
  { check: 'redirect-uri-again', breaks: 'the redirect URI of the exchange is not checked', fault: forgiving },
  { check: 'code-of-its-app', breaks: 'an app can use the codes of another', fault: forgiving },
  { check: 'code-once', breaks: 'a code can be used again', fault: forgiving },
  { check: 'code-made-up', breaks: 'any code will do', fault: forgiving },
  { check: 'refresh-rotates', breaks: 'the old refresh token goes on working', fault: forgiving },
  {
    check: 'refresh-rotates',
    breaks: 'a refresh gives the same refresh token again',
    fault: body(TOKEN, (tokens, { body }) => {
      const old = new URLSearchParams(body).get('refresh_token');
      return { ...tokens, ...(old && { refresh_token: old }) };
    }),
  },
  { check: 'refresh-once', breaks: 'a refresh token can be used many times at once', fault: forgiving },
  {
    check: 'refresh-made-up',
    breaks: 'a bad refresh token is another error',
    fault: status(TOKEN, 400, 400, { error: 'invalid_request' }),
  },
  {
    check: 'refresh-made-up',
    breaks: 'a bad refresh token is 401',
    fault: status(TOKEN, 400, 401),
  },
  { check: 'revoke-ends', breaks: 'revoke does nothing', fault: instead(REVOKE, () => json(200, {})) },
  { check: 'revoke-ends', breaks: 'calls after revoke are 403', fault: status(ME, 401, 403) },
  { check: 'revoke-always', breaks: 'revoke answers 204', fault: status(REVOKE, 200, 204) },
  { check: 'revoke-always', breaks: 'revoke says more than {}', fault: status(REVOKE, 200, 200, { revoked: true }) },
  {
    check: 'revoke-always',
    breaks: 'an unknown token is an error',
    fault: instead(REVOKE, ({ body }) => (body.includes('made-up') ? json(400, {}) : undefined)),
  },
  {
    check: 'revoke-body-credentials',
    breaks: 'revoke accepts only HTTP Basic',
    fault: instead(REVOKE, ({ headers }) => (headers.authorization ? undefined : json(200, {}))),
  },
  {
    check: 'revoke-wrong-credentials',
    breaks: 'revoke needs no credentials',
    fault: (world) =>
      asked(REVOKE, ({ headers }) => {
        headers.authorization = basic(world.client());
      })(),
  },
  {
    check: 'disconnect-ends',
    breaks: 'disconnecting does nothing',
    fault: instead(/\/profile\/disconnect$/, () => ({
      status: 303,
      headers: { location: '/profile' },
      body: Buffer.alloc(0),
    })),
  },
  {
    check: 'disconnect-ends',
    breaks: 'a refresh after the disconnect is another error',
    fault: status(TOKEN, 400, 401, { error: 'invalid_client' }),
  },
  { check: 'lost-access-ends', breaks: 'calls after the loss are 403', fault: status(ME, 401, 403) },
  {
    check: 'bearer-required',
    breaks: 'projects need no token',
    fault: async (world) => {
      const { access_token } = await world.session();
      return asked(PROJECTS, ({ headers }) => {
        headers.authorization = `Bearer ${access_token}`;
      })();
    },
  },
  { check: 'access-lifetime', breaks: 'access tokens do not expire', fault: status(ME, 401, 200, {}) },
  {
    check: 'access-lifetime',
    breaks: 'access tokens work for half an hour',
    fault: (world) => {
      const begin = world.now();
      return instead(ME, () => (world.now() - begin > 1_800_000 ? json(401, {}) : undefined))();
    },
  },
  { check: 'code-lifetime', breaks: 'codes do not expire', fault: forgiving },
  {
    check: 'code-lifetime',
    breaks: 'codes work for five minutes',
    fault: (world) => {
      const begin = world.now();
      return instead(TOKEN, () => (world.now() - begin > 300_000 ? json(400, {}) : undefined))();
    },
  },
  {
    check: 'refresh-lifetime',
    breaks: 'refresh tokens expire',
    fault: (world) => {
      const begin = world.now();
      return instead(TOKEN, () => (world.now() - begin > 864_000_000 ? json(400, {}) : undefined))();
    },
  },
];
