import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  type Admin,
  authorizeUrl,
  type Library,
  pkce,
  postToken,
  REDIRECT_URI,
  startTestLibrary,
  type TokenAnswer,
} from '../support/library.ts';

let library: Library;
let admin: Admin;
let browser: Browser;
let first: string;
let second: string;

beforeAll(async () => {
  ({ library, admin } = await startTestLibrary({
    autoConsent: false,
    app: { name: 'Mirror <1>', logoUrl: 'https://cdn.example/logo.png', websiteUrl: 'https://mirror.example/' },
  }));
  first = (await admin.addCompany({ name: 'First & Sons', userIds: ['usr_ada'] })).id;
  second = (await admin.addCompany({ name: 'Second', userIds: ['usr_ada'] })).id;
  await admin.addCompany({ id: 'cmp_foreign', name: 'Foreign' });
});
afterAll(() => library.close());
beforeEach(() => {
  browser = openBrowser();
});

type Browser = ReturnType<typeof openBrowser>;
type Fields = [string, string][];

/** A browser without JavaScript: cookies, links and forms. */
function openBrowser() {
  let cookie = '';
  let page = { url: '', text: '', response: new Response() };

  async function load(url: string, init: RequestInit = {}): Promise<typeof page> {
    const response = await fetch(url, { ...init, redirect: 'manual', headers: { cookie } });
    const set = response.headers.getSetCookie()[0];
    if (set) cookie = set.split(';')[0]!;
    const location = response.headers.get('location');
    if (location?.startsWith(library.appUrl)) return load(location);
    page = { url: location ?? url, text: await response.text(), response };
    return page;
  }

  return {
    open: (url: string) => load(url),
    page: () => page,
    cookie: () => cookie,
    setCookie: (value: string) => {
      cookie = value;
    },
    /** Submits the form with an action: its hidden fields and the given ones. */
    async submit(action: RegExp, fields: Fields, change: (body: URLSearchParams) => void = () => {}) {
      const form = [...page.text.matchAll(/<form method="post" action="([^"]*)">(.*?)<\/form>/gs)].find((form) =>
        action.test(form[1]!),
      )!;
      const hidden = [...form[2]!.matchAll(/type="hidden" name="(\w+)" value="([^"]*)"/g)];
      const body = new URLSearchParams(hidden.map(([, name, value]): [string, string] => [name!, unescaped(value!)]));
      for (const [name, value] of fields) body.append(name, value);
      change(body);
      return load(new URL(unescaped(form[1]!), library.appUrl).href, { method: 'POST', body });
    },
  };
}

function unescaped(text: string): string {
  return text.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code));
}

function credentials(password = library.users[0]!.password): Fields {
  return [
    ['email', 'Ada@Example.com'],
    ['password', password],
  ];
}

async function startFlow(): Promise<string> {
  const { verifier, challenge } = pkce();
  await browser.open(authorizeUrl(library, { code_challenge: challenge }));
  return verifier;
}

/** Signs in, allows access to companies, and returns the tokens. */
async function connectWith(...companies: string[]): Promise<TokenAnswer> {
  const verifier = await startFlow();
  if (browser.page().text.includes('Password')) await browser.submit(/sign-in/, credentials());
  const { url } = await browser.submit(/authorize/, [
    ...companies.map((id): [string, string] => ['company', id]),
    ['decision', 'allow'],
  ]);
  const code = new URL(url).searchParams.get('code')!;
  const fields = { grant_type: 'authorization_code', code, redirect_uri: REDIRECT_URI, code_verifier: verifier };
  return (await (await postToken(library, fields)).json()) as TokenAnswer;
}

async function me(token: string): Promise<{ status: number; companies?: string[] }> {
  const response = await fetch(`${library.apiUrl}/api/v1/me`, { headers: { authorization: `Bearer ${token}` } });
  const { companies } = (await response.json()) as { companies?: { id: string }[] };
  return { status: response.status, ...(companies && { companies: companies.map(({ id }) => id) }) };
}

describe('sign-in and consent (4.1)', () => {
  it('a user returns to the app after sign-in and consent, with a code for the chosen companies', async () => {
    const tokens = await connectWith(second);
    expect(browser.page().url).toMatch(new RegExp(`^${REDIRECT_URI}\\?code=svcc_[\\w-]+&state=the\\+state$`));
    expect(await me(tokens.access_token)).toEqual({ status: 200, companies: [second] });
  });

  it('the consent page shows which app asks for what, and escapes its texts', async () => {
    await startFlow();
    expect(browser.page().text).toContain('Mirror &#60;1&#62;');
    const { text } = await browser.submit(/sign-in/, credentials());
    expect(text).toContain('Mirror &#60;1&#62; would like to read your assets');
    expect(text).toContain('First &#38; Sons');
    expect(text).toContain('https://cdn.example/logo.png');
    expect(text).not.toContain('Foreign');
    expect(text).not.toMatch(/<script|onclick|style="/);
  });

  it('cancelling the consent redirects with access_denied and the state', async () => {
    await startFlow();
    await browser.submit(/sign-in/, credentials());
    const { url } = await browser.submit(/authorize/, [['decision', 'cancel']]);
    expect(url).toBe(`${REDIRECT_URI}?error=access_denied&state=the+state`);
  });

  it('a company that the user cannot read is not granted, and the page asks again if none is chosen', async () => {
    await startFlow();
    await browser.submit(/sign-in/, credentials());
    const { text } = await browser.submit(/authorize/, [
      ['company', 'cmp_foreign'],
      ['decision', 'allow'],
    ]);
    expect(text).toContain('Choose at least one company');
    const tokens = await connectWith(first, 'cmp_foreign');
    expect(await me(tokens.access_token)).toEqual({ status: 200, companies: [first] });
  });

  it('a signed-in user gets the consent page at once', async () => {
    await connectWith(first);
    await startFlow();
    expect(browser.page().text).toContain('Allow access');
  });
});

describe('the profile (3.2, 5)', () => {
  it('the profile lists each connected app once, and disconnects it', async () => {
    const tokens = [await connectWith(first), await connectWith(second)];
    const { text } = await browser.open(`${library.appUrl}/profile`);
    expect(text.match(/Mirror &#60;1&#62;/g)).toHaveLength(1);
    expect(text).toContain('First &#38; Sons and Second');
    expect((await browser.submit(/disconnect/, [])).text).toContain('No app is connected.');
    for (const { access_token, refresh_token } of tokens) {
      expect((await me(access_token)).status).toBe(401);
      const response = await postToken(library, { grant_type: 'refresh_token', refresh_token });
      expect([response.status, await response.json()]).toMatchObject([400, { error: 'invalid_grant' }]);
    }
  });

  it('the profile requires a sign-in, also after signing out', async () => {
    expect((await browser.open(`${library.appUrl}/`)).text).toContain('Sign in');
    await browser.submit(/sign-in/, credentials());
    expect(browser.page().text).toContain('Connected apps');
    const cookie = browser.cookie();
    await browser.submit(/sign-out/, []);
    browser.setCookie(cookie);
    expect((await browser.open(`${library.appUrl}/profile`)).text).toContain('Password');
  });
});

describe('security of pages', () => {
  it('no page allows scripts or frames, or sends its address to other sites', async () => {
    await startFlow();
    const pages = [
      browser.page(),
      await browser.submit(/sign-in/, credentials()),
      await browser.open(`${library.appUrl}/profile`),
    ];
    for (const { response } of pages) {
      const policy = response.headers.get('content-security-policy')!;
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).not.toContain('unsafe');
      expect(Object.fromEntries(response.headers)).toMatchObject({
        'x-frame-options': 'DENY',
        'referrer-policy': 'same-origin',
        'cache-control': 'no-store',
        'x-content-type-options': 'nosniff',
      });
    }
    const consent = pages[1]!.response.headers.get('content-security-policy')!;
    expect(consent).toContain(`form-action 'self' ${new URL(REDIRECT_URI).origin}`);
    expect(consent).toContain('img-src https://cdn.example');
  });

  it.each([
    ['the sign-in', /sign-in/, () => startFlow()],
    ['the consent', /authorize/, () => startFlow().then(() => browser.submit(/sign-in/, credentials()))],
    ['disconnecting', /disconnect/, () => connectWith(first).then(() => browser.open(`${library.appUrl}/profile`))],
    ['signing out', /sign-out/, () => connectWith(first).then(() => browser.open(`${library.appUrl}/profile`))],
  ])('a forged form for %s is refused', async (_what, action, prepare) => {
    await prepare();
    const forged = (body: URLSearchParams) => body.set('csrf', 'guessed');
    expect((await browser.submit(action, [...credentials(), ['decision', 'allow']], forged)).response.status).toBe(403);
  });

  it('a cookie from before the sign-in is not signed in afterwards', async () => {
    await startFlow();
    const planted = browser.cookie();
    await browser.submit(/sign-in/, credentials());
    expect(browser.cookie()).not.toBe(planted);
    browser.setCookie(planted);
    expect((await browser.open(`${library.appUrl}/profile`)).text).toContain('Password');
  });

  it.each(['https://evil.example/', '//evil.example', '/\\evil.example', '/\t/evil.example'])(
    'the sign-in does not redirect to %j',
    async (next) => {
      await browser.open(`${library.appUrl}/sign-in?next=${encodeURIComponent(next)}`);
      await browser.submit(/sign-in/, credentials(), (body) => body.set('next', next));
      expect(browser.page().url).toBe(`${library.appUrl}/profile`);
    },
  );

  it('a sign-in without a password gets 400', async () => {
    await startFlow();
    const { response } = await browser.submit(/sign-in/, [], (body) => body.delete('password'));
    expect(response.status).toBe(400);
  });

  it('an unknown address and a wrong password get the same answer, and attempts are limited', async () => {
    const user = await admin.addUser({ name: 'G', email: 'guessed@example.com', password: 'right' });
    await browser.open(`${library.appUrl}/sign-in`);
    const page = browser.page();
    const csrf = /name="csrf" value="([^"]*)"/.exec(page.text)![1]!;
    const attempt = async (email: string, password: string) => {
      const body = new URLSearchParams({ csrf, email, password, next: '/profile' });
      const headers = { cookie: browser.cookie() };
      const response = await fetch(`${library.appUrl}/sign-in`, { method: 'POST', body, headers, redirect: 'manual' });
      return { status: response.status, text: (await response.text()).replaceAll(email, '') };
    };
    expect(await attempt(user.email, 'wrong')).toEqual(await attempt('nobody@example.com', 'wrong'));

    const burst = await Promise.all(Array.from({ length: 20 }, () => attempt(user.email, 'wrong')));
    expect(burst.filter(({ status }) => status === 403)).toHaveLength(9);
    expect(burst.filter(({ status }) => status === 429)).toHaveLength(11);
    expect((await attempt(user.email, 'right')).status).toBe(429);
    await admin.advanceClock(15 * 60 + 1);
    expect((await attempt(user.email, 'right')).status).toBe(303);
  });
});
