import { onTestFinished } from 'vitest';
import { newBrowser } from '../../support/browser.ts';
import { startMirror } from '../../support/mirror.ts';
import { startOpenIdProvider } from '../../support/openid-provider.ts';
import { freePort } from '../../support/ports.ts';
import { newStage } from '../../support/stage.ts';

const accounts = {
  vera: { groups: ['everyone'], email: 'vera@example.com' },
  olga: { groups: ['everyone', 'media-ops'], email: 'olga@example.com' },
  adam: { groups: ['media-ops', 'platform'], email: 'adam@example.com' },
  nora: { groups: ['others'], email: 'nora@example.com' },
  sam: {},
};

export const optionsFor = (publicUrl: string) => ({
  accounts,
  redirectUri: `${publicUrl}/sign-in/callback`,
  signedOutUri: `${publicUrl}/sign-in`,
  deviceFlow: true,
});

export const oidc = (issuer: string) => ({
  OIDC_ISSUER: issuer,
  OIDC_CLIENT_ID: 'asset-mirror',
  OIDC_CLIENT_SECRET: 'the-secret-of-the-mirror',
  OIDC_ROLES: 'viewer:everyone, operator:media-ops, admin:platform',
});

export type Browser = ReturnType<typeof newBrowser>;

/** Enters a name at the provider; without one, the person cancels. */
export async function login(browser: Browser, page: { url: string }, name: string) {
  const answer = await browser.post(page.url, { login: name });
  return browser.visit(new URL(answer.headers.get('location')!, page.url).href);
}

/** An identity provider, and a stage whose operators sign in there. */
export async function newOpenIdStage() {
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  const provider = await startOpenIdProvider(optionsFor(origin));
  const stage = await newStage({ port, environment: oidc(provider.issuer) });

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

  return {
    provider,
    stage,
    origin,
    signIn,
    answerOf,
    me,
    lastEntries,
    newMirror,

    async close() {
      await stage.close();
      await provider.stop();
    },
  };
}
