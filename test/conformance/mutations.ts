import type { Answered, Asked, Fault } from './broken.ts';
import { basic, type World } from './world.ts';

/** A service that breaks one rule, and the check that must detect it. */
export type Mutation = {
  check: string;
  breaks: string;
  fault: (world: World) => Fault | Promise<Fault>;
  /** The admin API is broken, which registers apps. */
  isAdmin?: boolean;
};

// biome-ignore lint/suspicious/noExplicitAny: mutations change fields of any answer
type Json = any;

const ME = /\/me$/;
const LIST = /\/companies\/[^/]+\/assets$/;
const PROJECTS = /\/projects$/;
const DETAIL = /\/api\/v1\/assets\/[^/]+$/;
const TRANSCRIPT = /\/transcript$/;
const MEDIA = /^\/media\//;
const TOKEN = /\/oauth\/token$/;
const REVOKE = /\/oauth\/revoke$/;
const AUTHORIZE = /\/oauth\/authorize$/;

function json(status: number, body: unknown): Answered {
  return { status, headers: { 'content-type': 'application/json' }, body: Buffer.from(JSON.stringify(body)) };
}

/** Changes the JSON of successful answers at a path. */
function body(path: RegExp, change: (json: Json, asked: Asked) => Json): () => Fault {
  return () => ({
    answer(answered, asked) {
      if (!path.test(asked.path) || answered.status !== 200) return;
      const json = JSON.parse(answered.body.toString());
      answered.body = Buffer.from(JSON.stringify(change(json, asked)));
    },
  });
}

/** Changes fields of every listed asset. */
function listed(change: (asset: Json) => object): () => Fault {
  return body(LIST, (page) => ({
    ...page,
    assets: page.assets.map((asset: Json) => ({ ...asset, ...change(asset) })),
  }));
}

/** Changes fields of one asset. */
function one(change: (asset: Json) => object): () => Fault {
  return body(DETAIL, ({ asset }) => ({ asset: { ...asset, ...change(asset) } }));
}

/** Changes fields of its download. */
function download(change: (download: Json) => object): () => Fault {
  return one(({ download }) => ({ download: { ...download, ...change(download) } }));
}

/** Changes headers of answers at a path. */
function headers(path: RegExp, change: object, only: { method?: string; status?: number } = {}): () => Fault {
  return () => ({
    answer(answered, { method, path: at }) {
      const { method: onlyMethod = method, status: onlyStatus = answered.status } = only;
      if (!path.test(at) || method !== onlyMethod || answered.status !== onlyStatus) return;
      Object.assign(answered.headers, change);
    },
  });
}

function status(path: RegExp, from: number, to: number, content?: unknown): () => Fault {
  return () => ({
    answer(answered, { path: at }) {
      if (!path.test(at) || answered.status !== from) return;
      Object.assign(answered, content === undefined ? { status: to } : json(to, content));
    },
  });
}

function asked(path: RegExp, change: (asked: Asked) => unknown): () => Fault {
  return () => ({
    ask(asked) {
      if (path.test(asked.path)) change(asked);
    },
  });
}

function instead(path: RegExp, answer: (asked: Asked) => Answered | undefined): () => Fault {
  return () => ({ instead: (asked) => (path.test(asked.path) ? answer(asked) : undefined) });
}

function page(path: RegExp, from: RegExp, to: string): () => Fault {
  return () => ({
    answer(answered, asked) {
      if (path.test(asked.path)) answered.body = Buffer.from(answered.body.toString().replace(from, to));
    },
  });
}

/** Changes the redirects of a page. */
function redirect(change: (url: URL) => unknown): () => Fault {
  return () => ({
    answer(answered, { path }) {
      const { location } = answered.headers;
      if (!AUTHORIZE.test(path) || typeof location !== 'string') return;
      const url = new URL(location);
      change(url);
      answered.headers.location = url.href;
    },
  });
}

const TOKENS = {
  access_token: 'svca_anything',
  token_type: 'Bearer',
  expires_in: 3600,
  refresh_token: 'svcr_anything',
  scope: 'assets:read',
};

/** Answers with tokens where the service should refuse. */
const forgiving = status(TOKEN, 400, 200, TOKENS);
const linksForAll = status(MEDIA, 403, 200, {});

export const MUTATIONS: Mutation[] = [
  {
    check: 'app-name-shown',
    breaks: 'the consent page says "an app"',
    fault: page(AUTHORIZE, /Conformance &#60;suite&#62; &#38; Co/g, 'an app'),
  },
  { check: 'logo-shown', breaks: 'the consent page has no logo', fault: page(AUTHORIZE, /<img[^>]*>/g, '') },
  {
    check: 'listed-in-profile',
    breaks: 'the profile lists no app',
    fault: page(/\/profile$/, /<div class="row">.*<\/form><\/div>/gs, ''),
  },
  {
    check: 'listed-in-profile',
    breaks: 'the profile shows no logo',
    fault: page(/\/profile$/, /<img[^>]*>/g, ''),
  },
  ...['logo-https', 'website-required', 'redirect-uri-required', 'redirect-uri-https'].map((check) => ({
    check,
    breaks: 'every registration is accepted',
    fault: status(/\/apps$/, 400, 200, { clientId: 'app', clientSecret: 'svcs_x' }),
    isAdmin: true,
  })),
  {
    check: 'redirect-uri-https',
    breaks: 'http://localhost cannot be registered',
    isAdmin: true,
    fault: instead(/\/apps$/, ({ body }) => (body.includes('http://localhost') ? json(400, {}) : undefined)),
  },
  {
    check: 'several-redirect-uris',
    breaks: 'only the first redirect URI works',
    fault: instead(AUTHORIZE, ({ query }) =>
      query.get('redirect_uri')?.includes('/second') ? json(400, {}) : undefined,
    ),
  },
  {
    check: 'client-id-and-secret',
    breaks: 'the secret has another prefix',
    fault: (world) => {
      const { clientSecret } = world.options;
      world.options.clientSecret = 'secret_x';
      return { repair: () => Object.assign(world.options, { clientSecret }) };
    },
  },
  {
    check: 'secret-rotation',
    breaks: 'the old secret still works after a rotation',
    isAdmin: true,
    fault: instead(/\/secret$/, () => json(200, { clientSecret: 'svcs_new' })),
  },
  { check: 'allow-access', breaks: 'the button says "Approve"', fault: page(AUTHORIZE, /Allow access/g, 'Approve') },
  {
    check: 'signs-in-first',
    breaks: 'a user who is not signed in gets another page',
    fault: instead(AUTHORIZE, ({ headers }) => (headers.cookie ? undefined : json(200, {}))),
  },
  {
    check: 'wrong-password',
    breaks: 'any password is accepted',
    fault: (world) =>
      asked(/\/sign-in$/, (it) => {
        if (it.method !== 'POST') return;
        const form = new URLSearchParams(it.body);
        form.set('password', world.person!.password);
        it.body = form.toString();
      })(),
  },
  {
    check: 'code-and-state',
    breaks: 'the state is decoded twice',
    fault: redirect((url) => url.searchParams.set('state', decodeURIComponent(url.searchParams.get('state')!))),
  },
  {
    check: 'code-and-state',
    breaks: 'the code has another prefix',
    fault: redirect((url) => url.searchParams.set('code', 'code_x')),
  },
  {
    check: 'access-denied',
    breaks: 'cancelling is another error',
    fault: redirect((url) => url.searchParams.has('error') && url.searchParams.set('error', 'cancelled')),
  },
  {
    check: 'access-denied',
    breaks: 'cancelling loses the state',
    fault: redirect((url) => url.searchParams.delete('state')),
  },
  {
    check: 'picks-companies',
    breaks: 'every company is granted, also those not chosen',
    fault: (world) =>
      asked(AUTHORIZE, (it) => {
        if (it.method === 'POST') it.body += `&company=${world.own!.companyId}`;
      })(),
  },
  {
    check: 'unknown-client',
    breaks: 'an unknown client_id is accepted',
    fault: (world) => asked(AUTHORIZE, ({ query }) => query.set('client_id', world.client().clientId))(),
  },
  {
    check: 'redirect-uri-exact',
    breaks: 'a redirect URI with the right beginning is accepted',
    fault: (world) =>
      instead(AUTHORIZE, ({ query }) => {
        const to = query.get('redirect_uri') ?? '';
        if (to === world.options.redirectUri || !to.startsWith(world.options.redirectUri)) return undefined;
        return { status: 302, headers: { location: `${to}?code=svcc_x` }, body: Buffer.alloc(0) };
      })(),
  },
  {
    check: 'redirect-uri-exact',
    breaks: 'an error is sent to a wrong redirect URI',
    fault: instead(AUTHORIZE, ({ query }) => {
      const to = query.get('redirect_uri') ?? '';
      if (!to.includes('evil')) return undefined;
      return { status: 302, headers: { location: `${to}?error=invalid_request` }, body: Buffer.alloc(0) };
    }),
  },
  {
    check: 's256-only',
    breaks: 'any code_challenge_method is accepted',
    fault: asked(AUTHORIZE, ({ query }) => query.set('code_challenge_method', 'S256')),
  },
  {
    check: 'challenge-required',
    breaks: 'PKCE is optional',
    fault: asked(AUTHORIZE, ({ query }) => query.has('code_challenge') || query.set('code_challenge', 'x'.repeat(43))),
  },
  {
    check: 'response-type-code',
    breaks: 'any response_type gives a code',
    fault: asked(AUTHORIZE, ({ query }) => query.set('response_type', 'code')),
  },
  {
    check: 'codes-differ',
    breaks: 'all codes are equal',
    fault: redirect((url) => url.searchParams.has('code') && url.searchParams.set('code', 'svcc_always')),
  },

  {
    check: 'me',
    breaks: 'me has no email',
    fault: body(ME, (me) => ({ ...me, user: { ...me.user, email: undefined } })),
  },
  {
    check: 'me',
    breaks: 'me lists a company twice',
    fault: body(ME, (me) => ({ ...me, companies: [...me.companies, me.companies[0]] })),
  },
  { check: 'me-readable', breaks: 'a company of me has no projects endpoint', fault: status(PROJECTS, 200, 404, {}) },
  {
    check: 'me-current',
    breaks: 'me stays as it was at the consent',
    fault: () => {
      let first: Buffer | undefined;
      return {
        answer(answered, { path }) {
          if (!ME.test(path)) return;
          first ??= answered.body;
          answered.body = first;
        },
      };
    },
  },
  {
    check: 'me-current',
    breaks: 'companies can be read after access was revoked',
    fault: status(/\/api\/v1\/(companies|assets)\//, 404, 200, {}),
  },
  {
    check: 'projects',
    breaks: 'a project has no status',
    fault: body(PROJECTS, ({ projects }) => ({
      projects: projects.map((project: Json) => ({ ...project, status: undefined })),
    })),
  },
  {
    check: 'unknown-company',
    breaks: 'an unknown company has an empty list',
    fault: status(/\/companies\//, 404, 200, { projects: [], assets: [] }),
  },
  {
    check: 'read-only',
    breaks: 'assets can be deleted',
    fault: () => ({
      answer(answered, { method, path }) {
        if (method === 'DELETE' && path.startsWith('/api/v1')) answered.status = 204;
      },
    }),
  },
  {
    check: 'version',
    breaks: 'the API also works without its version',
    fault: asked(/^\/api\/me$/, (it) => Object.assign(it, { path: '/api/v1/me' })),
  },

  ...(
    [
      ['sizes are strings', (asset) => ({ size: String(asset.size) })],
      ['dates are in seconds', (asset) => ({ uploadDate: Math.round(asset.uploadDate / 1000) })],
      ['a type is not one of the eight', () => ({ assetType: 'video' })],
      ['a status is not one of the three', () => ({ status: 'done' })],
      ['hasTranscript is missing', () => ({ hasTranscript: undefined })],
      ['tags are one string', () => ({ tags: 'a,b' })],
      ['the MIME type is an extension', () => ({ mimeType: 'mp4' })],
      ['there is no thumbnail', () => ({ thumbnailUrl: undefined })],
    ] as [string, (asset: Json) => object][]
  ).map(([breaks, change]) => ({
    check: 'asset-fields',
    breaks,
    fault: listed(change),
  })),
  {
    check: 'project-of-asset',
    breaks: 'projectName is that of another project',
    fault: listed(({ projectName }) => (projectName ? { projectName: 'Another' } : {})),
  },
  {
    check: 'newest-first',
    breaks: 'assets are listed oldest first',
    fault: body(LIST, (page) => ({ ...page, assets: page.assets.toReversed() })),
  },
  {
    check: 'pages',
    breaks: 'a page begins one asset too late',
    fault: body(LIST, (page, { query }) => ({ ...page, assets: page.assets.slice(query.has('cursor') ? 1 : 0) })),
  },
  {
    check: 'pages',
    breaks: 'a page repeats the last asset of the one before',
    fault: () => {
      let last: Json[] = [];
      return body(LIST, (page, { query }) => {
        const assets = query.has('cursor') ? [...last, ...page.assets] : page.assets;
        last = assets.slice(-1);
        return { ...page, assets };
      })();
    },
  },
  {
    check: 'last-page',
    breaks: 'the cursor of the last page leads to the first',
    fault: () => {
      let first: string;
      return body(LIST, (page) => {
        first ??= page.nextCursor;
        return { ...page, nextCursor: page.nextCursor ?? first };
      })();
    },
  },
  {
    check: 'limit',
    breaks: 'a page has one asset less than the limit',
    fault: body(LIST, (page) => ({ ...page, assets: page.assets.slice(0, 99) })),
  },
  {
    check: 'limit-default',
    breaks: 'a page has 20 assets by default',
    fault: asked(LIST, ({ query }) => query.has('limit') || query.set('limit', '20')),
  },
  {
    check: 'limit-bounds',
    breaks: 'a limit of 1000 is accepted',
    fault: instead(LIST, ({ query }) =>
      query.get('limit') === '1000' ? json(200, { assets: Array(101) }) : undefined,
    ),
  },
  { check: 'cursor-made-up', breaks: 'a bad cursor is a server error', fault: status(LIST, 400, 500) },
  {
    check: 'uploads-arrive',
    breaks: 'a cursor is a page number',
    fault: () => ({
      ask({ path, query, headers }) {
        if (!LIST.test(path)) return;
        headers['x-from'] = query.get('cursor') ?? '0';
        query.delete('cursor');
        query.set('limit', '100');
      },
      answer(answered, { path, headers }) {
        if (!LIST.test(path) || answered.status !== 200) return;
        const { assets } = JSON.parse(answered.body.toString());
        const from = Number(headers['x-from']);
        const nextCursor = assets.length > from + 2 ? String(from + 2) : null;
        Object.assign(answered, json(200, { assets: assets.slice(from, from + 2), nextCursor }));
      },
    }),
  },
  {
    check: 'since',
    breaks: 'since includes assets of that time',
    fault: asked(LIST, ({ query }) => query.has('since') && query.set('since', String(Number(query.get('since')) - 1))),
  },
  {
    check: 'since',
    breaks: 'since is in seconds',
    fault: asked(
      LIST,
      ({ query }) => query.has('since') && query.set('since', String(Math.floor(Number(query.get('since')) / 1000))),
    ),
  },
  { check: 'asset-type', breaks: 'assetType is ignored', fault: asked(LIST, ({ query }) => query.delete('assetType')) },
  {
    check: 'asset-type',
    breaks: 'the type brand assets is refused',
    fault: instead(LIST, ({ query }) => (query.get('assetType') === 'brand assets' ? json(400, {}) : undefined)),
  },
  { check: 'project-id', breaks: 'projectId is ignored', fault: asked(LIST, ({ query }) => query.delete('projectId')) },
  {
    check: 'filters-together',
    breaks: 'since is ignored with a type',
    fault: asked(LIST, ({ query }) => query.has('assetType') && query.delete('since')),
  },
  {
    check: 'filters-together',
    breaks: 'the filter is ignored on the second page',
    fault: asked(LIST, ({ query }) => query.has('cursor') && query.delete('assetType')),
  },
  { check: 'type-or-project', breaks: 'both together are a server error', fault: status(LIST, 400, 500) },

  {
    check: 'detail',
    breaks: 'an asset has another name than in the list',
    fault: one(({ name }) => ({ name: `${name}!` })),
  },
  { check: 'detail', breaks: 'one asset has no tags', fault: one(() => ({ tags: undefined })) },
  {
    check: 'download-in-detail-only',
    breaks: 'listed assets have a download',
    fault: listed(() => ({ download: {} })),
  },
  {
    check: 'mp4-of-videos',
    breaks: 'a video has no mp4Url',
    fault: download(() => ({ mp4Url: null })),
  },
  {
    check: 'mp4-null',
    breaks: 'every asset has an mp4Url',
    fault: download(({ url }) => ({ mp4Url: url })),
  },
  {
    check: 'expires-at',
    breaks: 'expiresAt is in milliseconds',
    fault: download(({ expiresAt }) => ({ expiresAt: expiresAt * 1000 })),
  },
  {
    check: 'expires-at',
    breaks: 'expiresAt has passed',
    fault: download(({ expiresAt }) => ({ expiresAt: expiresAt - 86_400 })),
  },
  {
    check: 'facts',
    breaks: 'durations are whole seconds',
    fault: one(({ duration }) => ({ duration: Math.round(duration) })),
  },
  {
    check: 'unknown-asset',
    breaks: 'an unknown asset gets an empty answer',
    fault: status(DETAIL, 404, 200, { asset: {} }),
  },
  { check: 'ready', breaks: 'a ready asset cannot be downloaded', fault: status(MEDIA, 200, 403) },
  {
    check: 'processing-to-ready',
    breaks: 'an asset is ready from the start',
    fault: one(() => ({ status: 'ready' })),
  },
  {
    check: 'processing-to-ready',
    breaks: 'an asset never becomes ready',
    fault: one(() => ({ status: 'processing' })),
  },
  {
    check: 'unavailable',
    breaks: 'an unavailable asset has a file',
    fault: status(MEDIA, 404, 200),
  },
  { check: 'original-gone', breaks: 'a lost original is 410', fault: status(MEDIA, 404, 410) },
  {
    check: 'original-gone',
    breaks: 'the mp4Url is lost with the original',
    fault: status(/\/mp4$/, 200, 404),
  },
  {
    check: 'original-bytes',
    breaks: 'the file is one byte too short',
    fault: () => ({
      answer(answered, { path }) {
        if (MEDIA.test(path)) answered.body = answered.body.subarray(0, -1);
      },
    }),
  },
  {
    check: 'filename',
    breaks: 'filename is empty',
    fault: download(() => ({ filename: '' })),
  },

  {
    check: 'vtt',
    breaks: 'the default format is txt',
    fault: asked(TRANSCRIPT, ({ query }) => query.has('format') || query.set('format', 'txt')),
  },
  {
    check: 'vtt',
    breaks: 'captions have the type text/plain',
    fault: headers(TRANSCRIPT, { 'content-type': 'text/plain' }),
  },
  {
    check: 'txt',
    breaks: 'the format txt returns captions',
    fault: asked(TRANSCRIPT, ({ query }) => query.set('format', 'vtt')),
  },
  {
    check: 'json',
    breaks: 'words have no end',
    fault: body(TRANSCRIPT, (it) => ({
      ...it,
      words: it.words?.map((word: Json) => ({ ...word, end: undefined })),
    })),
  },
  {
    check: 'words-null',
    breaks: 'missing words are an empty list',
    fault: body(TRANSCRIPT, (it) => ({ ...it, words: [] })),
  },
  {
    check: 'no-speech',
    breaks: 'noSpeech comes with an empty text',
    fault: body(TRANSCRIPT, (it) => ({ ...it, text: '' })),
  },
  { check: 'no-speech', breaks: 'no speech is 204', fault: status(TRANSCRIPT, 200, 204) },
  { check: 'not-yet', breaks: 'a missing transcript is an empty one', fault: status(TRANSCRIPT, 404, 200, '') },
  { check: 'not-yet', breaks: 'a missing transcript is 202', fault: status(TRANSCRIPT, 404, 202) },
  { check: 'timed-only', breaks: 'an image has a transcript', fault: status(TRANSCRIPT, 404, 200) },
  { check: 'has-transcript', breaks: 'announced transcripts are refused', fault: status(TRANSCRIPT, 200, 403) },
  { check: 'format-unknown', breaks: 'an unknown format is a server error', fault: status(TRANSCRIPT, 400, 500) },

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

  { check: 'referer-given', breaks: 'the mp4 is refused in any case', fault: status(/\/mp4$/, 200, 403) },
  {
    check: 'referer-required',
    breaks: 'thumbnails need no Referer',
    fault: (world) =>
      asked(/\/thumbnail$/, ({ headers }) => {
        headers.referer ??= world.options.app;
      })(),
  },
  {
    check: 'referer-other',
    breaks: 'any Referer is accepted',
    fault: (world) =>
      asked(MEDIA, ({ headers }) => {
        headers.referer &&= world.options.app;
      })(),
  },
  { check: 'links-signed', breaks: 'signatures are not checked', fault: linksForAll },
  { check: 'links-of-one-asset', breaks: 'signatures are good for every file', fault: linksForAll },
  {
    check: 'ranges',
    breaks: 'ranges have wrong bytes',
    fault: () => ({
      answer(answered) {
        if (answered.status === 206) answered.body = Buffer.from(answered.body.map((byte) => byte ^ 1));
      },
    }),
  },
  {
    check: 'ranges',
    breaks: 'Content-Range counts from one',
    fault: headers(MEDIA, { 'content-range': 'bytes 1-1/200000' }, { status: 206 }),
  },
  { check: 'ranges', breaks: 'a range beyond the end is 200', fault: status(MEDIA, 416, 200) },
  {
    check: 'if-range',
    breaks: 'If-Range is ignored',
    fault: asked(MEDIA, ({ headers }) => {
      headers['if-range'] = undefined;
    }),
  },
  {
    check: 'etag',
    breaks: 'a range has another ETag',
    fault: headers(MEDIA, { etag: '"other"' }, { status: 206 }),
  },
  {
    check: 'etag',
    breaks: 'If-None-Match is ignored',
    fault: asked(MEDIA, ({ headers }) => {
      headers['if-none-match'] = undefined;
    }),
  },
  {
    check: 'head',
    breaks: 'HEAD has a wrong size',
    fault: headers(MEDIA, { 'content-length': '1' }, { method: 'HEAD' }),
  },
  {
    check: 'thumbnail',
    breaks: 'a thumbnail is not a picture',
    fault: headers(MEDIA, { 'content-type': 'application/json' }),
  },
  { check: 'thumbnail-lifetime', breaks: 'thumbnail links do not expire', fault: linksForAll },
  {
    check: 'thumbnail-lifetime',
    breaks: 'thumbnail links work for a quarter of an hour',
    fault: (world) => {
      const begin = world.now();
      return instead(MEDIA, () => (world.now() - begin > 900_000 ? json(403, {}) : undefined))();
    },
  },
  { check: 'link-lifetime', breaks: 'download links do not expire', fault: linksForAll },
  {
    check: 'link-lifetime',
    breaks: 'download links work for a minute',
    fault: (world) => {
      const begin = world.now();
      return instead(MEDIA, () => (world.now() - begin > 60_000 ? json(403, {}) : undefined))();
    },
  },
];
