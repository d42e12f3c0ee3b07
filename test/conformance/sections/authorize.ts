import { randomBytes } from 'node:crypto';
import { createBrowser } from '../browser.ts';
import { check, Failure, NotTried, same, that } from '../check.ts';
import { isConsent, isSignIn, type Walk, walk } from '../consent.ts';
import { describeAnswer } from '../http.ts';
import { challengeOf } from '../oauth.ts';
import { segment } from '../reading.ts';
import { Me } from '../shapes.ts';
import type { World } from '../world.ts';

/** The result of an authorize request that must not be granted. */
async function ask(world: World, query: Record<string, string | undefined>): Promise<Walk> {
  world.needPages();
  return world.authorize({ query });
}

function outcome({ landed, page }: Walk): string {
  if (landed) return `a redirect to ${landed.origin}${landed.pathname} with ${landed.search}`;
  return `a page (${page!.status}): ${page!.text.slice(0, 200)}`;
}

/** Shown to the user, without a redirect and without a consent form. */
function isShown(walked: Walk): boolean {
  return walked.page !== undefined && !walked.pages.some(isConsent) && !isSignIn(walked.page);
}

async function isNotGranted(world: World, query: Record<string, string | undefined>): Promise<void> {
  const walked = await ask(world, query);
  that('no code', !walked.landed?.searchParams.has('code'), outcome(walked));
  const error = walked.landed?.searchParams.get('error');
  if (walked.landed) {
    that('an error in the redirect', error !== null && error !== undefined, outcome(walked));
    that(
      'the state in the redirect',
      query.state === undefined || walked.landed.searchParams.get('state') === query.state,
      outcome(walked),
    );
  } else that('a page that shows the error', isShown(walked), outcome(walked));
  const [name, value] = Object.entries(query).find(([name]) => name !== 'state')!;
  world.observe(`${name} ${value ?? 'missing'}: ${error ?? `a page with status ${walked.page!.status}`}`);
}

export const authorize = [
  check(
    '4.1',
    'signs-in-first',
    'A browser that nobody signed in with gets a sign-in page, and no code.',
    async (world) => {
      if (world.options.byHand) throw new NotTried('with --by-hand, only you see the browser');
      const redirectUri = world.options.redirectUri;
      const url = world.authorizeUrl({ challenge: challengeOf('x'.repeat(43)), state: 'state' });
      const stranger = createBrowser(world.send);
      const arrival = await stranger.open(url, redirectUri);
      if (arrival.landed?.searchParams.has('code')) throw new NotTried('this service consents automatically');
      that('a sign-in page', arrival.page !== undefined && isSignIn(arrival.page), outcome({ ...arrival, pages: [] }));
    },
  ),

  check('4.1', 'wrong-password', 'A wrong password is refused.', async (world) => {
    const person = world.needPages();
    const url = world.authorizeUrl({ challenge: challengeOf('x'.repeat(43)), state: 'state' });
    const stranger = { ...person, password: 'not the password', browser: createBrowser(world.send) };
    const arrival = await stranger.browser.open(url, world.options.redirectUri);
    if (arrival.landed) throw new NotTried('this service consents automatically');
    const walked = await walk(url, world.options.redirectUri, stranger, { decision: 'allow' }).catch(() => undefined);
    that(
      'neither a consent page nor a code',
      !walked?.landed && !walked?.pages.some(isConsent),
      walked && outcome(walked),
    );
  }),

  check(
    '4.1',
    'code-and-state',
    'Approval redirects to the redirect URI with a code, svcc_…, and the state.',
    async (world) => {
      const state = 'a b&c=d/é?#%25+';
      const { landed } = await world.newCode({ query: { state } });
      same('the state', landed.searchParams.get('state'), state);
      const code = landed.searchParams.get('code')!;
      that('a code that begins with svcc_', code.startsWith('svcc_'), code.slice(0, 5));
      that('no error beside it', !landed.searchParams.has('error'), landed.search);
    },
  ),

  check(
    '4.1',
    'access-denied',
    'Cancelling redirects with error=access_denied, the state, and no code.',
    async (world) => {
      if (!world.options.byHand) world.needPages();
      const state = 'state & more';
      const walked = await world.authorize({ decision: 'cancel', query: { state } });
      if (walked.landed?.searchParams.has('code') && walked.pages.length === 0 && !world.options.byHand) {
        throw new NotTried('this service consents automatically');
      }
      const answer = walked.landed && Object.fromEntries(walked.landed.searchParams);
      that('error=access_denied', answer?.error === 'access_denied', outcome(walked));
      same('the state', answer.state, state);
      that('no code', answer.code === undefined, outcome(walked));
    },
  ),

  check('4.1', 'picks-companies', 'The user chooses companies, and the app can read only those.', async (world) => {
    const all = await world.companies();
    if (all.length < 2) throw new NotTried('needs a user with two companies');
    if (!world.options.byHand) await world.pagesOf();
    const [left, picked] = [all[0]!, all.at(-1)!];
    const { access_token } = await world.grant({ companies: [world.options.byHand ? picked.name : picked.id] });
    const { companies } = Me.parse((await world.get('/me', access_token)).json);
    const ids = companies.map(({ id }) => id);
    same('the companies of /me', ids, [picked.id]);
    const answer = await world.get(`/companies/${segment(left.id)}/assets`, access_token);
    that('no list of the company that was not chosen', answer.status >= 400, describeAnswer(answer));
  }),

  check('4.1', 'unknown-client', 'An unknown client_id is shown to the user, and never redirected.', async (world) => {
    const walked = await ask(world, { client_id: 'nobody-registered-this' });
    that('a page that shows the error', isShown(walked), outcome(walked));
  }),

  check(
    '4.1',
    'redirect-uri-exact',
    'A redirect URI is matched exactly: others are shown, and never redirected.',
    async (world) => {
      const registered = world.options.redirectUri;
      const { origin, pathname } = new URL(registered);
      const others = [
        'https://evil.example/oauth/callback',
        `${registered}/`,
        `${registered}${registered.includes('?') ? '&' : '?'}more=1`,
        `${origin}${pathname}/../other`,
        registered.replace(/^http(s?):\/\/[^/:]+/, 'http$1://evil.example'),
        registered.replace(origin, origin.toUpperCase()),
        registered.slice(0, -1),
      ];
      for (const redirectUri of others) {
        const walked = await ask(world, { redirect_uri: redirectUri });
        if (!isShown(walked)) throw new Failure(`a page that shows the error for ${redirectUri}`, outcome(walked));
      }
      const walked = await ask(world, { redirect_uri: undefined });
      that('a page that shows the error for no redirect URI', isShown(walked), outcome(walked));
    },
  ),

  check('4.1', 's256-only', 'PKCE accepts only S256: neither plain nor a missing method.', async (world) => {
    await isNotGranted(world, { code_challenge_method: 'plain', state: 'kept' });
    await isNotGranted(world, { code_challenge_method: undefined, state: 'kept' });
  }),

  check('4.1', 'challenge-required', 'There is no code without a code_challenge.', (world) =>
    isNotGranted(world, { code_challenge: undefined, state: 'kept' }),
  ),

  check('4.1', 'response-type-code', 'response_type is code, and nothing else.', async (world) => {
    await isNotGranted(world, { response_type: 'token', state: 'kept' });
    await isNotGranted(world, { response_type: undefined, state: 'kept' });
  }),

  check('4.1', 'codes-differ', 'Every approval gives another code.', async (world) => {
    const challenge = randomBytes(32).toString('base64url');
    const codes = [await world.newCode({ verifier: challenge }), await world.newCode({ verifier: challenge })];
    that('two codes', codes[0]!.code !== codes[1]!.code, 'the same code twice');
  }),
];
