import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { readConfig } from '../../../src/config/config.ts';
import { examine } from '../../../src/doctor.ts';
import { newBrowser } from '../../support/browser.ts';
import { libraryEnvironment } from '../../support/mirror.ts';
import { startOpenIdProvider } from '../../support/openid-provider.ts';
import { type Browser, newOpenIdStage, oidc, optionsFor } from './openid-stage.ts';

const openId = await newOpenIdStage();
const { provider, stage, origin, signIn, me, lastEntries, newMirror } = openId;
const adminToken = 'the-token-of-the-operators';

afterAll(openId.close);

describe('the provider changes', () => {
  test('sessions continue while the identity provider is down, the sign-in says so, and the token works', async () => {
    const { browser } = await signIn('olga');
    await provider.stop();
    onTestFinished(provider.start);
    expect(await me(browser)).toMatchObject({ name: 'olga@example.com' });
    const page = await newBrowser().visit(`${origin}/sign-in/provider`);
    expect([page.status, page.text]).toEqual([503, expect.stringContaining('does not answer')]);
    expect(page.text).toContain('Use the admin token');
    const [, action] = /<form method="post" action="([^"]*)"/.exec(page.text)!;
    const answer = await fetch(new URL(action!, page.url), {
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
