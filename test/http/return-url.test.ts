import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { signConnectLink } from '../../src/oauth/authorize.ts';
import { newBrowser } from '../support/browser.ts';
import { chromium, skipped, startChromium } from '../support/chromium.ts';
import { startTestLibrary } from '../support/library.ts';
import { newGround, startMirror } from '../support/mirror.ts';
import { freePort } from '../support/ports.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

const agency = 'https://agency.example';
const done = `${agency}/done?client=a%20b`;
let stage: Stage;
beforeAll(async () => {
  stage = await newStage({ environment: { CONNECT_RETURN_ORIGINS: `${agency},http://localhost:3000` } });
});
afterEach(() => stage.admin.clearFaults());
afterAll(() => stage?.close());

const linkFor = async (request: object = { returnUrl: done }): Promise<string> =>
  (await stage.mirror.api('POST', '/connect-links', request)).url;

async function somebody(): Promise<string> {
  const userId = `user-${randomUUID().slice(0, 8)}`;
  await stage.admin.addUser({ id: userId, name: userId, email: `${userId}@example.com` });
  await stage.admin.addCompany({ id: `company of ${userId}`, name: userId, userIds: [userId] });
  return userId;
}

/** A browser after the consent, and the address of the callback. */
async function consented(link: string, userId?: string) {
  const browser = newBrowser();
  const consent = (await browser.get(link)).headers.get('location');
  const answer = await browser.get(`${consent}&login_hint=${userId ?? (await somebody())}`);
  return { browser, back: answer.headers.get('location')! };
}

/** Where the page leads: at once, or by its link back to the agency. */
async function leads(response: Response) {
  const text = await response.text();
  const decoded = (value?: string) => value?.replaceAll('&amp;', '&');
  return {
    status: response.status,
    atOnce: decoded(/<meta http-equiv="refresh" content="0;url=([^"]+)">/.exec(text)?.[1]),
    back: decoded(/<a href="([^"]+)">Back to agency\.example<\/a>/.exec(text)?.[1]),
    retry: text.includes('>Try again</a>'),
    text,
  };
}

describe('a connect link with a return URL', () => {
  test('after the consent, the browser goes on to the return URL with the id of the connection', async () => {
    const userId = await somebody();
    const { browser, back } = await consented(await linkFor(), userId);
    const page = await leads(await browser.get(back));
    const { connections } = await stage.mirror.api('GET', '/connections?limit=250');
    const { id } = connections.find((it: { user: { id: string } }) => it.user.id === userId);
    const expected = `${agency}/done?client=a%20b&connection=${id}&status=connected`;
    expect(page).toMatchObject({ status: 200, atOnce: expected, back: expected });
    expect(page.text).not.toMatch(/svc[a-z]_|state=|code=/);
    // Loading the page again does not lead away.
    expect(await leads(await browser.get(back))).toMatchObject({ status: 400, atOnce: undefined, back: expected });
  });

  test('a user who cancels gets the page with a link back, and may try again', async () => {
    const browser = newBrowser();
    const consent = new URL((await browser.get(await linkFor())).headers.get('location')!);
    const state = consent.searchParams.get('state');
    const page = await browser.get(`${stage.ground.publicUrl}/oauth/callback?error=access_denied&state=${state}`);
    const back = `${agency}/done?client=a%20b&status=refused`;
    expect(await leads(page)).toMatchObject({ status: 200, atOnce: undefined, back, retry: true });
  });

  test('a failure leads back with the status failed, and one that is retried later with pending', async () => {
    const broken = await consented(await linkFor());
    const failed = `${agency}/done?client=a%20b&status=failed`;
    const wrong = await broken.browser.get(broken.back.replace(/code=[^&]+/, 'code=svcc_wrong'));
    expect(await leads(wrong)).toMatchObject({ status: 400, atOnce: undefined, back: failed, retry: true });

    const busy = await consented(await linkFor());
    await stage.admin.setFaults({ endpoint: 'me', retryAfter: 21, times: 1 });
    const back = `${agency}/done?client=a%20b&status=pending`;
    expect(await leads(await busy.browser.get(busy.back))).toMatchObject({ status: 202, atOnce: undefined, back });

    const { sealer } = stage.mirror.service.context;
    const dates = { madeAt: new Date(0), expiresAt: new Date(Date.now() - 1) };
    const expired = signConnectLink(sealer, { returnUrl: done, ...dates });
    const page = await newBrowser().get(`${stage.ground.publicUrl}/connect?link=${expired}`);
    expect(await leads(page)).toMatchObject({ status: 410, back: failed });
  });

  test('a return URL whose origin is no longer allowed is ignored', async () => {
    const { sealer } = stage.mirror.service.context;
    const expiresAt = new Date(Date.now() + 60_000);
    const signed = signConnectLink(sealer, { returnUrl: 'https://former.example/', madeAt: new Date(), expiresAt });
    const { browser, back } = await consented(`${stage.ground.publicUrl}/connect?link=${signed}`);
    const page = await leads(await browser.get(back));
    expect(page).toMatchObject({ status: 200, atOnce: undefined, text: expect.stringContaining('You are connected') });
    expect(page.text).not.toContain('former.example');
  });

  test('a link whose return URL was altered is refused', async () => {
    const link = new URL(await linkFor());
    const [body, signature] = link.searchParams.get('link')!.split('.');
    const payload = JSON.parse(Buffer.from(body!, 'base64url').toString());
    expect(payload.r).toBe(done);
    const forged = Buffer.from(JSON.stringify({ ...payload, r: 'http://localhost:3000/' })).toString('base64url');
    link.searchParams.set('link', `${forged}.${signature}`);
    expect(await leads(await newBrowser().get(link.href))).toMatchObject({ status: 400, back: undefined });
    // A parameter beside the link changes nothing.
    const { browser, back } = await consented(
      `${await linkFor()}&return_url=https://evil.com&returnUrl=https://evil.com`,
    );
    expect((await leads(await browser.get(`${back}&returnUrl=https://evil.com`))).text).not.toContain('evil.com');
  });

  test.each([
    'https://agency.example.evil.com/',
    'https://agency.example@evil.com/',
    '//agency.example/',
    'javascript:alert(1)',
    'https://agency.example/\r\nx: y',
    'https://аgency.example/',
  ])('no link is made for the return URL %j', async (returnUrl) => {
    await expect(linkFor({ returnUrl })).rejects.toThrow(
      /400 .*return_url_not_allowed.*https:\/\/agency\.example or http/,
    );
  });

  test('no link is made for a very long return URL', async () => {
    await expect(linkFor({ returnUrl: `${agency}/${'x'.repeat(500)}` })).rejects.toThrow(/400 .*invalid_request.*500/);
    const link = await linkFor({ returnUrl: `${agency}/?q=${'x'.repeat(470)}` });
    const { browser, back } = await consented(link);
    expect(await leads(await browser.get(back))).toMatchObject({
      status: 200,
      atOnce: expect.stringMatching(/x&conn/),
    });
  });
});

test('without CONNECT_RETURN_ORIGINS no return URL is allowed', { tags: 'slow' }, async () => {
  const other = await newStage();
  try {
    await expect(other.mirror.api('POST', '/connect-links', { returnUrl: done })).rejects.toThrow(
      /400 .*return_url_not_allowed.*CONNECT_RETURN_ORIGINS is empty/,
    );
  } finally {
    await other.close();
  }
});

describe.skipIf(!chromium)(`in a real browser${skipped}`, () => {
  let site: Server;
  afterAll(() => {
    site?.closeAllConnections();
    site?.close();
  });

  // The consent page of the library has a form, and its CSP allows no redirect to a third site.
  test('a user who signs in and consents arrives at the site of the agency', { tags: 'slow' }, async () => {
    const requests: { url: string; referer: string | undefined }[] = [];
    site = createServer(({ url = '', headers: { referer } }, response) => {
      requests.push({ url, referer });
      response.setHeader('content-type', 'text/html').end('Back at the agency');
    });
    await new Promise<void>((listening) => site.listen(0, 'localhost', listening));
    const origin = `http://localhost:${(site.address() as AddressInfo).port}`;
    const port = await freePort();
    const ground = await newGround({ port, environment: { CONNECT_RETURN_ORIGINS: origin } });
    const redirectUris = [`${ground.publicUrl}/oauth/callback`];
    const { library, admin } = await startTestLibrary({ autoConsent: false, redirectUris });
    const mirror = await startMirror(ground, library, 'web');
    const chrome = await startChromium();
    try {
      await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
      const { url } = await mirror.api('POST', '/connect-links', { returnUrl: `${origin}/done?a=1` });
      const page = await chrome.newPage();
      await page.goto(url);
      await page.type('input[type=email]', library.users[0]!.email);
      await page.type('input[type=password]', library.users[0]!.password);
      await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
      await page.locator('::-p-text(Allow access)').click();
      await until('the site of the agency', () => page.url().startsWith(`${origin}/done?a=1&connection=`));
      const arrived = requests.find((request) => request.url.startsWith('/done'));
      expect(arrived).toEqual({ url: expect.stringMatching(/^\/done\?a=1&connection=[\w-]+&status=connected$/) });
    } finally {
      await chrome.close();
      await mirror.stop();
      await library.close();
      await ground.clear();
    }
  });
});
