import { afterAll, afterEach, describe, expect, inject, onTestFinished, test } from 'vitest';
import { newBrowser } from '../../support/browser.ts';
import { spawnOpenIdProvider, startOpenIdProvider } from '../../support/openid-provider.ts';
import { until } from '../../support/until.ts';
import { type Browser, login, newOpenIdStage, oidc, optionsFor } from './openid-stage.ts';

const openId = await newOpenIdStage();
const { provider, origin, signIn, answerOf, me, lastEntries, newMirror } = openId;
const faketime = inject('faketime');

afterAll(openId.close);
afterEach(() => {
  Object.assign(provider.lifetimes, { idToken: 3600, code: 60 });
});

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

  test('the page that was asked for before the sign-in is opened after it', async () => {
    const browser = newBrowser();
    const away = await browser.get(`${origin}/queues/`);
    const page = await browser.visit(new URL(away.headers.get('location')!, origin).href);
    expect(page.text).toContain(`Sign in with ${new URL(provider.issuer).host}`);
    const [, link] = /class="button" href="([^"]*)"/.exec(page.text)!;
    const { page: opened } = await signIn('vera', browser, new URL(link!.replaceAll('&amp;', '&'), origin).href);
    expect(new URL(opened.url).pathname).toMatch(/^\/queues/);
  });

  test('the code of the identity provider is used with PKCE, and only once', async () => {
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

  test('of two tabs, the one that began last can sign in, also if the other comes back first', async () => {
    const browser = newBrowser();
    const first = await answerOf(browser, 'vera');
    const last = await browser.get(`${origin}/sign-in/provider`);
    expect((await browser.visit(first)).status).toBe(400);
    // The provider knows the person already.
    expect((await browser.visit(last.headers.get('location')!)).status).toBe(200);
    expect(await me(browser)).toMatchObject({ role: 'viewer' });
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

test('an e-mail address that is not verified gives neither a role nor a name', async () => {
  const { publicUrl, start } = await newMirror();
  const email = 'adam@example.com';
  const options = {
    ...optionsFor(publicUrl),
    accounts: {
      eve: { email, email_verified: false },
      mallory: { email, email_verified: undefined },
      adam: { email, email_verified: true },
    },
  };
  const other = await startOpenIdProvider(options);
  onTestFinished(other.stop);
  await start({ ...oidc(other.issuer), OIDC_ROLE_CLAIM: 'email', OIDC_ROLES: `admin:${email}` });
  const pages = [];
  for (const name of ['eve', 'mallory', 'adam']) {
    const browser = newBrowser();
    pages.push(await login(browser, await browser.visit(`${publicUrl}/sign-in/provider`), name));
  }
  expect(pages.map(({ status }) => status)).toEqual([403, 403, 200]);
  expect(pages[0]!.text).toContain('eve has no role here');
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
