import { afterAll, afterEach, beforeAll, describe, expect, inject, onTestFinished, test } from 'vitest';
import { readConfig } from '../../../src/config/config.ts';
import { examine } from '../../../src/doctor.ts';
import { newBrowser } from '../../support/browser.ts';
import { libraryEnvironment, startMirror } from '../../support/mirror.ts';
import { type OpenIdProvider, spawnOpenIdProvider, startOpenIdProvider } from '../../support/openid-provider.ts';
import { freePort } from '../../support/ports.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { until } from '../../support/until.ts';

const accounts = {
  vera: { groups: ['everyone'], email: 'vera@example.com' },
  olga: { groups: ['everyone', 'media-ops'], email: 'olga@example.com' },
  adam: { groups: ['media-ops', 'platform'], email: 'adam@example.com' },
  nora: { groups: ['others'], email: 'nora@example.com' },
  sam: {},
};
const adminToken = 'the-token-of-the-operators';

const optionsFor = (publicUrl: string) => ({
  accounts,
  redirectUri: `${publicUrl}/sign-in/callback`,
  signedOutUri: `${publicUrl}/sign-in`,
  deviceFlow: true,
});
const faketime = inject('faketime');

let provider: OpenIdProvider;
let stage: Stage;
let origin: string;
const oidc = (issuer: string) => ({
  OIDC_ISSUER: issuer,
  OIDC_CLIENT_ID: 'asset-mirror',
  OIDC_CLIENT_SECRET: 'the-secret-of-the-mirror',
  OIDC_ROLES: 'viewer:everyone, operator:media-ops, admin:platform',
});
beforeAll(async () => {
  const port = await freePort();
  origin = `http://127.0.0.1:${port}`;
  provider = await startOpenIdProvider(optionsFor(origin));
  stage = await newStage({ port, environment: oidc(provider.issuer) });
});
afterAll(async () => {
  await stage?.close();
  await provider?.stop();
});
afterEach(() => {
  Object.assign(provider.lifetimes, { idToken: 3600, code: 60 });
});

type Browser = ReturnType<typeof newBrowser>;

/** Enters a name at the provider; without one, the person cancels. */
async function login(browser: Browser, page: { url: string }, name: string) {
  const answer = await browser.post(page.url, { login: name });
  return browser.visit(new URL(answer.headers.get('location')!, page.url).href);
}
async function signIn(name: string, browser = newBrowser(), from = `${origin}/sign-in/provider?to=/%23`) {
  return { browser, page: await login(browser, await browser.visit(from), name) };
}
/** The address to which the provider leads back, without following it. */
async function answerOf(
  browser: Browser,
  name: string,
  { change, origin: from = origin }: { change?: (url: URL) => void; origin?: string } = {},
): Promise<string> {
  const begun = await browser.get(`${from}/sign-in/provider`);
  const url = new URL(begun.headers.get('location')!);
  change?.(url);
  const form = await browser.visit(url.href);
  const posted = await browser.post(form.url, { login: name });
  const resumed = await browser.get(new URL(posted.headers.get('location')!, form.url).href);
  return resumed.headers.get('location')!;
}
const me = async (browser: Browser) =>
  (await browser.get(`${origin}/api/me`)).json() as Promise<Record<string, unknown>>;
const lastEntries = async (limit = 1) => (await stage.mirror.service.operations.auditLog({ limit })).entries;

describe('signing in at the provider', () => {
  test.each([
    ['vera', 'viewer'],
    ['olga', 'operator'],
    ['adam', 'admin'],
  ])('the groups of %s give the role %s', async (name, role) => {
    const { browser, page } = await signIn(name);
    expect(page).toMatchObject({ status: 200, url: `${origin}/` });
    expect(await me(browser)).toMatchObject({ subject: name, name: `${name}@example.com`, role, method: 'oidc' });
    expect(await lastEntries()).toMatchObject([
      { action: 'signIn', outcome: 'done', by: { subject: name, name: `${name}@example.com`, role, method: 'oidc' } },
    ]);
  });

  test('the page before the sign-in is opened afterwards', async () => {
    const browser = newBrowser();
    const away = await browser.get(`${origin}/queues/`);
    const page = await browser.visit(new URL(away.headers.get('location')!, origin).href);
    expect(page.text).toContain(`Sign in with ${new URL(provider.issuer).host}`);
    const [, link] = /class="button" href="([^"]*)"/.exec(page.text)!;
    const { page: opened } = await signIn('vera', browser, new URL(link!.replaceAll('&amp;', '&'), origin).href);
    expect(new URL(opened.url).pathname).toMatch(/^\/queues/);
  });

  test('the code is used with PKCE, and only once', async () => {
    const browser = newBrowser();
    const answer = await answerOf(browser, 'vera', {
      change: (url) => expect(url.searchParams.get('code_challenge_method')).toBe('S256'),
    });
    const copy = newBrowser();
    for (const [host, jar] of browser.cookies) copy.cookies.set(host, new Map(jar));
    expect((await browser.visit(answer)).status).toBe(200);
    expect((await browser.visit(answer)).text).toContain('has expired or was used before');
    // A thief of the answer and the cookie comes too late.
    const replayed = await copy.visit(answer);
    expect([replayed.status, replayed.text]).toEqual([400, expect.stringContaining('invalid_grant')]);
    expect(await me(copy)).toMatchObject({ code: 'unauthorized' });
  });

  test('without a role nobody gets in, and the page says what to ask for', async () => {
    for (const name of ['nora', 'sam']) {
      const { browser, page } = await signIn(name);
      expect(page.status).toBe(403);
      expect(page.text).toContain('has no role here');
      expect(page.text).toContain('everyone (viewer), media-ops (operator), platform (admin)');
      expect(await me(browser)).toMatchObject({ code: 'unauthorized' });
      expect(await lastEntries()).toMatchObject([{ action: 'signIn', outcome: 'refused', by: null, code: 'no_role' }]);
    }
  });

  test('a person can cancel a sign-in at the identity provider', async () => {
    const { page } = await signIn('');
    expect([page.status, page.text]).toEqual([403, expect.stringContaining('denied or cancelled')]);
  });
});

describe('bad answers', () => {
  const refused = async (browser: Browser, answer: string, status: number, says: string) => {
    const page = await browser.visit(answer);
    expect([page.status, page.text]).toEqual([status, expect.stringContaining(says)]);
    expect(await me(browser)).toMatchObject({ code: 'unauthorized' });
  };

  test('an answer without the attempt of this browser is refused', async () => {
    const answer = await answerOf(newBrowser(), 'vera');
    await refused(newBrowser(), answer, 400, 'has expired or was used before');
  });

  test('a sign-in with an answer for another attempt is refused', async () => {
    const [browser, other] = [newBrowser(), newBrowser()];
    const answer = await answerOf(other, 'vera');
    await answerOf(browser, 'vera');
    await refused(browser, answer, 400, 'was not accepted');
  });

  test('an ID token with another nonce is refused', async () => {
    const browser = newBrowser();
    const answer = await answerOf(browser, 'vera', { change: (url) => url.searchParams.set('nonce', 'another') });
    await refused(browser, answer, 400, 'was not accepted');
  });

  test('a sign-in with an answer of another issuer is refused', async () => {
    const browser = newBrowser();
    const url = new URL(await answerOf(browser, 'vera'));
    expect(url.searchParams.get('iss')).toBe(provider.issuer);
    url.searchParams.set('iss', 'https://elsewhere.example');
    await refused(browser, url.href, 400, 'was not accepted');
  });

  test('a sign-in that fails because of a wrong client secret says so', async () => {
    const { publicUrl, start } = await newMirror();
    const other = await startOpenIdProvider(optionsFor(publicUrl));
    onTestFinished(other.stop);
    await start({ ...oidc(other.issuer), OIDC_CLIENT_SECRET: 'another' });
    const browser = newBrowser();
    const page = await browser.visit(await answerOf(browser, 'vera', { origin: publicUrl }));
    expect([page.status, page.text]).toEqual([
      400,
      expect.stringContaining('does not accept OIDC_CLIENT_ID and OIDC_CLIENT_SECRET (invalid_client)'),
    ]);
  });

  test('an expired code is refused', { tags: 'slow' }, async () => {
    provider.lifetimes.code = 1;
    const browser = newBrowser();
    const answer = await answerOf(browser, 'vera');
    const expired = Date.now() + 2000;
    await until('the code to expire', () => Date.now() > expired);
    await refused(browser, answer, 400, 'invalid_grant');
  });

  test.skipIf(!faketime).each([
    ['-90s', 303],
    ['-300s', 400],
    ['+90s', 303],
  ])(
    'a clock of the provider may be ahead, or a minute behind: %s with tokens for 60 s',
    { tags: 'slow' },
    async (offset, status) => {
      const { publicUrl, start } = await newMirror();
      const options = { ...optionsFor(publicUrl), lifetimes: { idToken: 60, code: 600 } };
      const late = await spawnOpenIdProvider(options, { faketime: faketime!, offset });
      onTestFinished(late.stop);
      await start(oidc(late.issuer));
      const browser = newBrowser();
      const answer = await answerOf(browser, 'vera', { origin: publicUrl });
      expect((await browser.get(answer)).status).toBe(status);
    },
  );
});

describe('the provider changes', () => {
  test('sessions continue while it is down, the sign-in says so, and the token works', async () => {
    const { browser } = await signIn('olga');
    await provider.stop();
    onTestFinished(provider.start);
    expect(await me(browser)).toMatchObject({ name: 'olga@example.com' });
    const page = await newBrowser().visit(`${origin}/sign-in/provider`);
    expect([page.status, page.text]).toEqual([503, expect.stringContaining('does not answer')]);
    expect(page.text).toContain('Use the admin token');
    const answer = await fetch(`${origin}/sign-in`, {
      method: 'POST',
      redirect: 'manual',
      headers: { origin },
      body: new URLSearchParams({ token: adminToken }),
    });
    expect([answer.status, answer.headers.get('location')]).toEqual([303, '/']);
  });

  test('a wrong issuer is named, also by doctor', async () => {
    const mirror = await newMirror();
    const other = await startOpenIdProvider(optionsFor(mirror.publicUrl));
    onTestFinished(other.stop);
    const wrong = { ...oidc(other.issuer.replace('127.0.0.1', 'localhost')) };
    await mirror.start(wrong);
    const page = await newBrowser().visit(`${mirror.publicUrl}/sign-in/provider`);
    expect(page.status).toBe(503);
    expect(page.text).toContain('check OIDC_ISSUER: it must be exactly the issuer in http://localhost:');
    expect(page.text).not.toContain('[object');
    const config = readConfig({ ...stage.ground.environment, ...libraryEnvironment(stage.library), ...wrong });
    const findings = await Array.fromAsync(examine(config, new AbortController().signal));
    expect(findings.find(({ what }) => what === 'OIDC_ISSUER')).toMatchObject({ level: 'wrong' });
    const good = await Array.fromAsync(
      examine(
        { ...config, signIn: { ...config.signIn, provider: { ...config.signIn.provider!, issuer: other.issuer } } },
        new AbortController().signal,
      ),
    );
    expect(good.find(({ what }) => what === 'OIDC_ISSUER')).toMatchObject({ level: 'ok' });
  });

  test('the provider rotates its keys: sessions continue, and the next sign-in works', async () => {
    const { browser } = await signIn('olga');
    await provider.rotateKeys();
    expect(await me(browser)).toMatchObject({ name: 'olga@example.com' });
    expect((await signIn('vera')).page.status).toBe(200);
  });
});

describe('sessions', () => {
  test('signing out ends the session here and at the provider', async () => {
    const { browser } = await signIn('vera');
    const answer = await browser.post(`${origin}/sign-out`, {}, { origin });
    const page = await answer.text();
    const [, away] = /url=([^"]*)"/.exec(page)!;
    const url = new URL(away!.replaceAll('&amp;', '&'));
    expect(url.href).toContain(`${provider.issuer}/session/end?`);
    expect(url.searchParams.get('post_logout_redirect_uri')).toBe(`${origin}/sign-in`);
    expect((await browser.get(url.href)).status).toBe(200);
    expect(await me(browser)).toMatchObject({ code: 'unauthorized' });
    expect(url.searchParams.get('client_id')).toBe('asset-mirror');
    expect(url.searchParams.has('id_token_hint')).toBe(false);
  });

  test('operators see and end their own sessions, an admin those of all', async () => {
    const { browser: olga } = await signIn('olga');
    const { browser: vera } = await signIn('vera');
    const { browser: adam } = await signIn('adam');
    const list = async (browser: Browser) =>
      (
        (await (await browser.get(`${origin}/api/sessions`)).json()) as {
          sessions: { id: string; subject: string; isThis: boolean }[];
        }
      ).sessions;
    expect(new Set((await list(vera)).map(({ subject }) => subject))).toEqual(new Set(['vera']));
    expect(new Set((await list(adam)).map(({ subject }) => subject))).toEqual(
      new Set(['vera', 'olga', 'adam', 'ADMIN_TOKEN']),
    );
    const mine = (await list(olga)).find(({ isThis }) => isThis)!;
    const end = (browser: Browser, id: string) => browser.send('DELETE', `${origin}/api/sessions/${id}`, { origin });
    expect((await end(vera, mine.id)).status).toBe(404);
    expect((await end(adam, mine.id)).status).toBe(200);
    expect(await me(olga)).toMatchObject({ code: 'unauthorized' });
    expect(await lastEntries()).toMatchObject([{ action: 'endSession', targetId: mine.id, by: { subject: 'adam' } }]);
  });

  test('a session ends when it is not used, and at the latest after its lifetime', async () => {
    const { browser } = await signIn('vera');
    await stage.query("UPDATE sessions SET last_used_at = now() - interval '119 minutes' WHERE subject = 'vera'");
    expect(await me(browser)).toMatchObject({ subject: 'vera' });
    await stage.query(
      "UPDATE sessions SET last_used_at = last_used_at - interval '121 minutes' WHERE subject = 'vera'",
    );
    expect(await me(browser)).toMatchObject({ code: 'unauthorized' });
    const { browser: second } = await signIn('vera');
    await stage.query("UPDATE sessions SET ends_at = now() WHERE subject = 'vera'");
    expect(await me(second)).toMatchObject({ code: 'unauthorized' });
  });
});

test('another client or other roles of the provider end the sessions that the old ones gave', async () => {
  const { browser } = await signIn('olga');
  const { publicUrl, start } = await newMirror();
  await start({ OIDC_ROLES: 'viewer:everyone, admin:platform' });
  const cookie = [...browser.cookies.get(new URL(origin).host)!].map(([name, value]) => `${name}=${value}`).join('; ');
  expect((await fetch(`${publicUrl}/api/me`, { headers: { cookie } })).status).toBe(401);
  expect(await me(browser)).toMatchObject({ role: 'operator' });
});

test('an e-mail address that is not verified gives neither a role nor a name', async () => {
  const { publicUrl, start } = await newMirror();
  const email = 'adam@example.com';
  const options = {
    ...optionsFor(publicUrl),
    accounts: { eve: { email, email_verified: false }, adam: { email, email_verified: true } },
  };
  const other = await startOpenIdProvider(options);
  onTestFinished(other.stop);
  await start({ ...oidc(other.issuer), OIDC_ROLE_CLAIM: 'email', OIDC_ROLES: `admin:${email}` });
  const pages = [];
  for (const name of ['eve', 'adam']) {
    const browser = newBrowser();
    pages.push(await login(browser, await browser.visit(`${publicUrl}/sign-in/provider`), name));
  }
  expect(pages.map(({ status }) => status)).toEqual([403, 200]);
  expect(pages[0]!.text).toContain('eve has no role here');
});

/** Another mirror with the same database, at an address of its own. */
async function newMirror() {
  const port = await freePort();
  const publicUrl = `http://127.0.0.1:${port}`;
  return {
    publicUrl,
    async start(environment: Record<string, string>): Promise<void> {
      const all = { ...stage.ground.environment, PORT: String(port), PUBLIC_URL: publicUrl, ...environment };
      const mirror = await startMirror({ ...stage.ground, port, publicUrl, environment: all }, stage.library, 'web');
      onTestFinished(() => mirror.stop());
    },
  };
}

test('TOKEN_SIGN_IN=false: a token opens no browser session and ends those that it began, but works in programs', async () => {
  const begun = newBrowser();
  await begun.post(`${origin}/sign-in`, { token: adminToken }, { origin });
  expect(await me(begun)).toMatchObject({ method: 'admin_token' });
  const { publicUrl, start } = await newMirror();
  await start({ TOKEN_SIGN_IN: 'false' });
  expect((await newBrowser().visit(`${publicUrl}/sign-in`)).text).not.toContain('type="password"');
  const answer = await newBrowser().post(`${publicUrl}/sign-in`, { token: adminToken }, { origin: publicUrl });
  expect(answer.status).toBe(403);
  const cookie = [...begun.cookies.get(new URL(origin).host)!].map(([name, value]) => `${name}=${value}`).join('; ');
  expect((await fetch(`${publicUrl}/api/me`, { headers: { cookie } })).status).toBe(401);
  const authorization = `Bearer ${adminToken}`;
  expect((await fetch(`${publicUrl}/api/me`, { headers: { authorization } })).status).toBe(200);
});

test('roles may be in a nested claim that only the userinfo endpoint has', async () => {
  const { publicUrl, start } = await newMirror();
  const kim = { realm_access: { roles: ['media'] }, email: 'kim@example.com' };
  const options = { ...optionsFor(publicUrl), accounts: { kim }, userInfoOnly: true, signOut: false };
  const other = await startOpenIdProvider(options);
  onTestFinished(other.stop);
  await start({ ...oidc(other.issuer), OIDC_ROLE_CLAIM: 'realm_access.roles', OIDC_ROLES: 'operator:media' });
  const browser = newBrowser();
  await login(browser, await browser.visit(`${publicUrl}/sign-in/provider`), 'kim');
  const operator = await (await browser.get(`${publicUrl}/api/me`)).json();
  expect(operator).toMatchObject({ name: 'kim@example.com', role: 'operator' });
  const answer = await browser.post(`${publicUrl}/sign-out`, {}, { origin: publicUrl });
  expect([answer.status, answer.headers.get('location')]).toEqual([303, '/sign-in']);
});
