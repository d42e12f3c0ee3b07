// @module-tag slow
import { mkdir } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { Server as HttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { chromium, flawsOf, skipped, startChromium, startHttps } from '../support/chromium.ts';
import { type Admin, authorizeUrl, type Library, pkce, postToken, startTestLibrary } from '../support/library.ts';

/** The directory for pictures of every page. Without it, none are taken. */
const PICTURES = process.env.LIBRARY_PICTURES;

const LOGO = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 128 128"><rect width="128" height="128" fill="#2b3a8f"/>
<path d="M28 92 64 30l36 62z" fill="#ffd166"/></svg>`;

let chrome: Browser;
let library: Library;
let admin: Admin;
let app: Server;
let logo: { url: string; server: HttpsServer };
let redirectUri: string;
let companies: { id: string; name: string }[];
let context: BrowserContext;
let page: Page;
let complaints: string[];

describe.skipIf(!chromium)(`in a real browser${skipped}`, () => {
  beforeAll(async () => {
    logo = await startHttps('image/svg+xml', LOGO);
    app = createServer((_request, response) => response.setHeader('content-type', 'text/html').end('Back at the app'));
    await new Promise<void>((listening) => app.listen(0, '127.0.0.1', listening));
    redirectUri = `http://127.0.0.1:${(app.address() as AddressInfo).port}/callback`;
    ({ library, admin } = await startTestLibrary({
      autoConsent: false,
      redirectUris: [redirectUri],
      app: { name: 'Safekeep & Söhne', logoUrl: `${logo.url}/logo.svg`, websiteUrl: 'https://safekeep.example/' },
    }));
    companies = [];
    for (const name of ['Nordlicht Film GmbH', 'Kumo Studio 雲', 'Press & Events <Europe>']) {
      companies.push(await admin.addCompany({ name, userIds: ['usr_ada'] }));
    }
    chrome = await startChromium();
  });
  afterAll(async () => {
    await chrome?.close();
    await library?.close();
    for (const server of [app, logo?.server]) {
      server?.closeAllConnections();
      server?.close();
    }
  });
  beforeEach(async () => {
    context = await chrome.createBrowserContext();
    complaints = [];
    await open({ width: 1280 });
  });
  afterEach(() => context.close());

  describe.each([
    ['with JavaScript', true],
    ['without JavaScript', false],
  ])('%s', (_how, isOn) => {
    beforeEach(() => page.setJavaScriptEnabled(isOn));

    it('a user signs in, sees which app asks for what, and allows access to the chosen companies', async () => {
      const verifier = await authorize();
      expect(await text()).toContain('to continue to Safekeep & Söhne');
      await signIn('not the password');
      expect(await text()).toContain('That email address and password do not match.');
      expect(await filledIn('input[type=email]')).toBe('ada@example.com');
      await page.waitForSelector('input[name=password]:focus');
      await signIn();

      expect(await text()).toContain('Safekeep & Söhne would like to read your assets');
      expect(await text()).toContain('Press & Events <Europe>');
      expect(await text()).toContain('Ada');
      expect(await pictureWidth()).toBeGreaterThan(0);
      await page.click(`input[value="${companies[1]!.id}"]`);
      await press('Allow access');

      const arrived = new URL(page.url());
      expect(arrived.origin + arrived.pathname).toBe(redirectUri);
      expect(arrived.searchParams.get('state')).toBe('the state');
      expect(await text()).toBe('Back at the app');
      const tokens = await exchange(arrived.searchParams.get('code')!, verifier);
      expect((await me(tokens.access_token)).companies).toEqual([companies[0], companies[2]]);
      expect(complaints).toEqual([]);
    });

    it('a user who cancels returns to the app with access_denied', async () => {
      await authorize();
      await signIn();
      await press('Cancel');
      const { searchParams } = new URL(page.url());
      expect(Object.fromEntries(searchParams)).toEqual({ error: 'access_denied', state: 'the state' });
      expect(complaints).toEqual([]);
    });

    it('a user who chooses no company is asked again', async () => {
      await authorize();
      await signIn();
      for (const { id } of companies) await page.click(`input[value="${id}"]`);
      await press('Allow access');
      expect(await text()).toContain('Choose at least one company, or cancel.');
      for (const { id } of companies) expect(await isTicked(id)).toBe(false);
      expect(page.url()).toContain(library.appUrl);
    });

    it('a user disconnects the app in the profile, and its tokens stop working', async () => {
      const verifier = await authorize();
      await signIn();
      await press('Allow access');
      const tokens = await exchange(new URL(page.url()).searchParams.get('code')!, verifier);
      expect((await me(tokens.access_token)).status).toBe(200);

      await page.goto(`${library.appUrl}/profile`);
      expect(await text()).toContain('Connected apps');
      expect(await text()).toContain('Safekeep & Söhne');
      expect(await pictureWidth()).toBeGreaterThan(0);
      await press('Disconnect');
      expect(await text()).toContain('No app is connected.');
      expect((await me(tokens.access_token)).status).toBe(401);
      const refused = await postToken(library, {
        grant_type: 'refresh_token',
        refresh_token: tokens.refresh_token,
      });
      expect([refused.status, await refused.json()]).toMatchObject([400, { error: 'invalid_grant' }]);

      await press('Sign out');
      expect(await text()).toContain('Sign in');
      await page.goBack();
      expect(await text()).not.toContain('Connected apps');
      expect(complaints).toEqual([]);
    });
  });

  it('sign-in and consent work with the keyboard alone', async () => {
    await authorize();
    await page.waitForSelector('input[type=email]:focus');
    await page.keyboard.type('ada@example.com');
    await page.keyboard.press('Tab');
    await page.keyboard.type(library.users[0]!.password);
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    for (let i = 0; i < 20 && (await focused()) !== 'Allow access'; i++) await page.keyboard.press('Tab');
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    expect(new URL(page.url()).searchParams.get('code')).toMatch(/^svcc_/);
  });

  it.each([
    ['a desktop', { width: 1280 }],
    ['a phone', { width: 390 }],
    ['a small phone', { width: 320 }],
    ['a desktop in dark colours', { width: 1280, isDark: true }],
    ['a phone in dark colours', { width: 390, isDark: true }],
  ])('every page fits %s, and is accessible', async (_what, screen) => {
    await page.close();
    await open(screen);
    const isDark = 'isDark' in screen;
    const name = (what: string) => `${what}-${screen.width}${isDark ? '-dark' : ''}`;
    const seen: string[] = [];
    const look = async (what: string) => {
      await picture(name(what));
      seen.push(...(await flawsOf(page)).map((flaw) => `${what}: ${flaw}`));
    };

    await page.goto(`${library.appUrl}/oauth/authorize?client_id=unknown`);
    await look('problem');
    const verifier = await authorize();
    await look('sign-in');
    await signIn('not the password');
    await look('wrong-password');
    await signIn();
    await look('consent');
    for (const { id } of companies) await page.click(`input[value="${id}"]`);
    await press('Allow access');
    await look('consent-none-picked');
    for (const { id } of companies) if (!(await isTicked(id))) await page.click(`input[value="${id}"]`);
    await press('Allow access');
    await exchange(new URL(page.url()).searchParams.get('code')!, verifier);
    await page.goto(`${library.appUrl}/profile`);
    await look('profile');
    await press('Disconnect');
    await look('profile-empty');
    expect(seen).toEqual([]);
  });
});

async function open({ width, isDark = false }: { width: number; isDark?: boolean }): Promise<void> {
  page = await context.newPage();
  await page.setViewport({ width, height: width < 500 ? 844 : 800, deviceScaleFactor: width < 500 ? 2 : 1 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: isDark ? 'dark' : 'light' }]);
  page.on('console', (message) => {
    // The page about a wrong password has the status 403.
    const isKnown = message.text().includes('status of 403') && message.location().url?.endsWith('/sign-in');
    if (message.type() === 'error' && !isKnown) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
}

/** Starts the flow as an app does, and returns the verifier. */
async function authorize(): Promise<string> {
  const { verifier, challenge } = pkce();
  await page.goto(authorizeUrl(library, { redirect_uri: redirectUri, code_challenge: challenge }));
  return verifier;
}

async function signIn(password = library.users[0]!.password): Promise<void> {
  await fill('input[type=email]', 'ada@example.com');
  await fill('input[type=password]', password);
  await press('Sign in');
}

async function fill(field: string, value: string): Promise<void> {
  await page.click(field, { count: 3 });
  await page.type(field, value);
}

async function press(label: string): Promise<void> {
  await Promise.all([page.waitForNavigation(), page.click(`xpath/.//button[normalize-space()="${label}"]`)]);
}

async function exchange(code: string, verifier: string): Promise<{ access_token: string; refresh_token: string }> {
  const fields = { grant_type: 'authorization_code', code, redirect_uri: redirectUri, code_verifier: verifier };
  return (await (await postToken(library, fields)).json()) as { access_token: string; refresh_token: string };
}

async function me(token: string): Promise<{ status: number; companies?: unknown[] }> {
  const response = await fetch(`${library.apiUrl}/api/v1/me`, { headers: { authorization: `Bearer ${token}` } });
  return { status: response.status, ...((await response.json()) as { companies?: unknown[] }) };
}

async function picture(name: string): Promise<void> {
  if (PICTURES === undefined) return;
  await mkdir(PICTURES, { recursive: true });
  await page.screenshot({ path: join(PICTURES, `${name}.png`) as `${string}.png`, fullPage: true });
}

function text(): Promise<string> {
  return page.evaluate('document.body.innerText') as Promise<string>;
}

function filledIn(field: string): Promise<string> {
  return page.$eval(field, (it) => (it as unknown as { value: string }).value);
}

function focused(): Promise<string> {
  return page.evaluate('document.activeElement.innerText ?? ""') as Promise<string>;
}

/** 0 if a picture failed to load. */
function pictureWidth(): Promise<number> {
  return page.evaluate('document.querySelector("img.logo").naturalWidth') as Promise<number>;
}

function isTicked(companyId: string): Promise<boolean> {
  return page.evaluate(`document.querySelector('input[value="${companyId}"]').checked`) as Promise<boolean>;
}
