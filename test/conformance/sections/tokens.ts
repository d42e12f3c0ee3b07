import { check, Failure, same, shaped, that } from '../check.ts';
import { type Answer, describeAnswer } from '../http.ts';
import { segment } from '../reading.ts';
import { InvalidGrant, TokenResponse } from '../shapes.ts';
import type { World } from '../world.ts';

const MINUTE = 60;
const HOUR = 3600;
const DAY = 24 * HOUR;

function refusesGrant(what: string, answer: Answer): void {
  that(`${what} to be refused`, answer.status >= 400 && answer.status < 500, hidden(answer));
  const { access_token } = (answer.json ?? {}) as { access_token?: string };
  that(`no token for ${what}`, access_token === undefined, 'an access token');
}

function invalidGrant(what: string, answer: Answer): void {
  that(`status 400 for ${what}`, answer.status === 400, hidden(answer));
  shaped(`the answer to ${what}`, InvalidGrant, answer.json);
}

function hidden(answer: Answer): string {
  return describeAnswer(answer).replace(/svc(.)_[\w-]+/g, 'svc$1_…');
}

function works(what: string, answer: Answer) {
  if (answer.status !== 200) throw new Failure(`status 200 for ${what}`, hidden(answer));
  return shaped(what, TokenResponse, answer.json);
}

async function isAlive(world: World, token: string): Promise<boolean> {
  const { status } = await world.get('/me', token);
  return status === 200;
}

/** Section 3.2: checks that a connection has ended. */
async function hasEnded(world: World, grant: { access_token: string; refresh_token: string }, client = world.client()) {
  const answer = await world.get('/me', grant.access_token);
  same('the status of an API call afterwards', answer.status, 401);
  invalidGrant('a refresh afterwards', await world.refresh(grant.refresh_token, { client }));
}

export const tokens = [
  check('2.3', 'token-response', 'The token response has its five fields.', async (world) => {
    const answer = await world.exchange(await world.newCode());
    same('the status', answer.status, 200);
    shaped('the token response', TokenResponse, answer.json);
  }),

  check('4.2', 'form-and-json', 'The body is a form; JSON is accepted too.', async (world) => {
    let { refresh_token } = works('a form', await world.exchange(await world.newCode()));
    ({ refresh_token } = works('a refresh as JSON', await world.refresh(refresh_token, { json: true })));
    works('a refresh as a form', await world.refresh(refresh_token));
    works('a code exchange as JSON', await world.exchange(await world.newCode(), { json: true }));
  }),

  check(
    '4.2',
    'basic-and-body',
    'Client credentials are HTTP Basic, or client_id and client_secret in the body.',
    async (world) => {
      let { refresh_token } = works('Basic', await world.exchange(await world.newCode()));
      ({ refresh_token } = works('credentials in a form', await world.refresh(refresh_token, { inBody: true })));
      works('credentials in JSON', await world.refresh(refresh_token, { inBody: true, json: true }));
      works(
        'credentials in the form of a code exchange',
        await world.exchange(await world.newCode(), { inBody: true }),
      );
    },
  ),

  check(
    '4.2',
    'client-authentication',
    'There are no tokens without the client secret, in the header or the body.',
    async (world) => {
      const client = world.client();
      const code = await world.newCode();
      for (const inBody of [false, true]) {
        const wrong = { ...client, clientSecret: 'svcs_wrong' };
        const answer = await world.exchange(code, { client: wrong, inBody });
        refusesGrant('a wrong secret', answer);
        world.observe(`wrong client secret: ${answer.status} ${(answer.json as { error?: string })?.error}`);
      }
      const bare = await world.send(`${world.options.api}/api/oauth/token`, {
        method: 'POST',
        body: new URLSearchParams({
          grant_type: 'authorization_code',
          code: code.code,
          redirect_uri: code.redirectUri,
          code_verifier: code.verifier,
          client_id: client.clientId,
        }),
      });
      refusesGrant('no secret', bare);
    },
  ),

  check('4.2', 'verifier-proves', 'A code works only with the verifier of its challenge.', async (world) => {
    const code = await world.newCode();
    refusesGrant('another verifier', await world.exchange({ ...code, verifier: 'x'.repeat(43) }));
  }),

  check('4.2', 'verifier-required', 'A code does not work without its verifier.', async (world) => {
    const { code, redirectUri } = await world.newCode();
    const fields = { grant_type: 'authorization_code', code, redirect_uri: redirectUri };
    refusesGrant('no verifier', await world.token(fields));
  }),

  check('4.1', 'verifier-length', 'A code_verifier is 43 to 128 characters.', async (world) => {
    for (const length of [43, 128]) {
      const code = await world.newCode({ verifier: 'v.-~_'.repeat(26).slice(0, length) });
      works(`a verifier of ${length} characters`, await world.exchange(code));
    }
    for (const length of [42, 129]) {
      const code = await world.newCode({ verifier: 'v'.repeat(length) });
      refusesGrant(`a verifier of ${length} characters`, await world.exchange(code));
    }
  }),

  check(
    '4.2',
    'redirect-uri-again',
    'The redirect_uri of the exchange is that of the authorize request.',
    async (world) => {
      const code = await world.newCode();
      refusesGrant('another redirect_uri', await world.exchange({ ...code, redirectUri: `${code.redirectUri}/` }));
    },
  ),

  check('4.2', 'code-of-its-app', 'A code works for the app it was issued to.', async (world) => {
    const admin = world.needAdmin('needs another app; --admin can register one');
    const { redirectUri } = world.options;
    const client = await admin.addApp({
      name: 'Thief',
      websiteUrl: 'https://thief.example/',
      redirectUris: [redirectUri],
    });
    refusesGrant('the code of another app', await world.exchange(await world.newCode(), { client }));
    const { refresh_token } = await world.grant();
    refusesGrant('the refresh token of another app', await world.refresh(refresh_token, { client }));
  }),

  check('2.2', 'code-once', 'An authorization code works once.', async (world) => {
    const code = await world.newCode();
    works('the first exchange', await world.exchange(code));
    refusesGrant('the second exchange', await world.exchange(code));
  }),

  check('2.2', 'code-made-up', 'A code that was never issued does not work.', async (world) => {
    const made = { code: 'svcc_made-up', verifier: 'x'.repeat(43), redirectUri: world.options.redirectUri };
    refusesGrant('a made-up code', await world.exchange(made));
  }),

  check(
    '4.2',
    'refresh-rotates',
    'Every refresh gives a new refresh token that works, and the old one stops working.',
    async (world) => {
      const first = await world.grant();
      const second = works('the first refresh', await world.refresh(first.refresh_token));
      that('a new refresh token', second.refresh_token !== first.refresh_token, 'the old one');
      that('a new access token that works', await isAlive(world, second.access_token), '/me refuses it');
      const third = works('a refresh with the new one', await world.refresh(second.refresh_token));
      that('another new one', third.refresh_token !== second.refresh_token, 'the same again');
      refusesGrant('the old refresh token', await world.refresh(second.refresh_token));
    },
  ),

  check('4.2', 'refresh-once', 'Of several simultaneous refreshes with the same token, one works.', async (world) => {
    const { refresh_token } = await world.grant();
    const answers = await Promise.all(Array.from({ length: 5 }, () => world.refresh(refresh_token)));
    same('answers with status 200', answers.filter(({ status }) => status === 200).length, 1);
  }),

  check('2.2', 'refresh-made-up', 'A refresh token that was never issued is invalid_grant.', async (world) =>
    invalidGrant('a made-up refresh token', await world.refresh('svcr_made-up')),
  ),

  check('3.2', 'revoke-ends', 'After revoke, API calls are 401 and a refresh is invalid_grant.', async (world) => {
    const grant = await world.grant();
    const answer = await world.revoke(grant.refresh_token);
    same('the status of revoke', answer.status, 200);
    await hasEnded(world, grant);
  }),

  check('4.3', 'revoke-always', 'Revoke answers 200 with an empty JSON object, whatever the token.', async (world) => {
    const { refresh_token } = await world.grant();
    for (const [what, answer] of [
      ['an unknown token', await world.revoke('svcr_made-up')],
      ['no token at all', await world.revoke('')],
      ['a token', await world.revoke(refresh_token)],
      ['a token that was revoked before', await world.revoke(refresh_token)],
    ] as const) {
      same(`the status for ${what}`, answer.status, 200);
      same(`the body for ${what}`, answer.json, {});
    }
  }),

  check('4.3', 'revoke-body-credentials', 'Revoke also accepts client credentials in the body.', async (world) => {
    const grant = await world.grant();
    const answer = await world.revoke(grant.refresh_token, world.client(), true);
    same('the status of revoke', answer.status, 200);
    await hasEnded(world, grant);
  }),

  check(
    '4.3',
    'revoke-wrong-credentials',
    'Revoke answers 200 to wrong credentials as well, and ends nothing.',
    async (world) => {
      const grant = await world.grant();
      const answer = await world.revoke(grant.refresh_token, { ...world.client(), clientSecret: 'svcs_wrong' });
      same('the status of revoke', answer.status, 200);
      same('the body', answer.json, {});
      that('the connection to live on', await isAlive(world, grant.access_token), 'it has ended');
    },
  ),

  check(
    '3.2',
    'disconnect-ends',
    'The user disconnects the app in the profile: API calls are 401, a refresh is 400 invalid_grant.',
    async (world) => {
      const { disconnectInProfile } = await import('./profile.ts');
      const person = world.admin ? await world.newPerson() : world.needPages();
      const grant = await world.grant({ person });
      that('a connection that works', await isAlive(world, grant.access_token), '/me refuses it');
      await disconnectInProfile(world, person);
      if (!world.admin) world.forget();
      await hasEnded(world, grant);
    },
  ),

  check(
    '3.2',
    'lost-access-ends',
    'The user loses access: API calls are 401, a refresh is 400 invalid_grant.',
    async (world) => {
      const admin = world.needAdmin();
      const person = await world.newPerson();
      const grant = await world.grant({ person });
      for (const id of [person.companyId, person.secondId]) await admin.setAccess(id, person.userId, false);
      await hasEnded(world, grant);
    },
  ),

  check('4', 'bearer-required', 'Every resource endpoint needs a Bearer token that was issued.', async (world) => {
    const [company] = await world.companies();
    const id = segment(company!.id);
    const [asset] = (await world.page(company!.id, { limit: 1 })).assets;
    const paths = ['/me', `/companies/${id}/projects`, `/companies/${id}/assets`];
    if (asset) paths.push(`/assets/${segment(asset.id)}`, `/assets/${segment(asset.id)}/transcript`);
    for (const path of paths) {
      const { refresh_token } = await world.session();
      for (const authorization of [undefined, 'Bearer svca_made-up', `Bearer ${refresh_token}`, 'Basic eDp5']) {
        const headers = authorization === undefined ? {} : { authorization };
        const { status } = await world.send(`${world.options.api}/api/v1${path}`, { headers });
        const kind = authorization?.split(' ')[0] ?? 'no token';
        that(`a refusal of ${kind}`, status >= 400 && status < 500, `${path.split('?')[0]} → ${status}`);
        if (path === '/me') world.observe(`${kind}, not issued: status ${status}`);
      }
    }
  }),

  check('2.2', 'access-lifetime', 'An access token works for an hour, and not afterwards.', async (world) => {
    world.canPassTime(HOUR);
    const { access_token, refresh_token } = await world.grant();
    await world.passTime(HOUR - 30);
    that('a token that works half a minute before the hour', await isAlive(world, access_token), '/me refuses it');
    await world.passTime(60);
    that('a refusal after the hour', !(await isAlive(world, access_token)), '/me answers');
    works('a refresh after the hour', await world.refresh(refresh_token));
  }),

  check('2.2', 'code-lifetime', 'An authorization code works for ten minutes, and not afterwards.', async (world) => {
    world.canPassTime(10 * MINUTE);
    const [early, late] = [await world.newCode(), await world.newCode()];
    await world.passTime(9 * MINUTE);
    works('a code after nine minutes', await world.exchange(early));
    await world.passTime(90);
    refusesGrant('a code after ten and a half minutes', await world.exchange(late));
  }),

  check('2.2', 'refresh-lifetime', 'A refresh token works until it is used, also after a month.', async (world) => {
    world.canPassTime(30 * DAY);
    const { refresh_token } = await world.grant();
    await world.passTime(30 * DAY);
    works('a refresh after a month', await world.refresh(refresh_token));
  }),
];
