import { AUTHORIZE, asked, instead, json, type Mutation, redirect } from './faults.ts';

export const authorize: Mutation[] = [
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
];
