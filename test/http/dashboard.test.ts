import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { newBrowser } from '../support/browser.ts';
import { chromium, flawsOf, leftOut, startChromium } from '../support/chromium.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

/** A directory for pictures of every view; without it, none are taken. */
const PICTURES = process.env.DASHBOARD_PICTURES;

let scene: Scene;
let chrome: Browser;
let context: BrowserContext;
let page: Page;
let broken: string;
/** What the browser has to say against a page: errors, and what the policy forbids. */
const complaints: string[] = [];

describe.skipIf(!chromium)(`the dashboard in a real browser${leftOut}`, () => {
  beforeAll(async () => {
    [scene, chrome] = await Promise.all([
      newScene({ environment: { CONNECTION_CONCURRENCY: '2' }, library: { transcriptDelay: 600_000 } }),
      startChromium(),
    ]);
    await scene.admin.addProject({ id: 'campaign', companyId: 'acme', name: 'Campaign' });
    context = await chrome.createBrowserContext();
    page = await open({ width: 1280 });
  }, 90_000);
  afterEach(() => {
    expect(complaints.splice(0)).toEqual([]);
  });
  afterAll(async () => {
    await chrome?.close();
    await scene?.close();
  });

  test('asks for the token, and shows what there is', async () => {
    await page.goto(`${scene.ground.publicUrl}/`);
    await page.type('#token', 'the-operators-token');
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    await shows('Live');
    await shows('Nothing is listed yet');
  });

  test('a sync is followed while it runs, without a reload', async () => {
    broken = await scene.upload({
      name: 'Broken cut.mov',
      projectId: 'campaign',
      overrideDetail: { asset: { download: { url: 7 } } } as never,
    });
    for (let i = 0; i < 22; i++) await scene.upload({ name: `Poster ${i}.pdf`, projectId: 'campaign' });
    await scene.film({ name: 'Launch film.mp4' });
    await scene.admin.addFault({ endpoint: 'media', latency: 500 });
    await page.evaluate(
      `globalThis.seen = new Set(); setInterval(() => seen.add(document.querySelector('.huge')?.innerText), 50)`,
    );
    await page.evaluate(`document.querySelector('[aria-labelledby=connections-title] tbody a').click()`);
    await press('Sync now');
    await shows('The sync has been asked for.');
    await page.evaluate(`location.hash = '#/'`);
    // What somebody is at stays as it is, whatever changes around it.
    await page.locator('input[type=search]').fill('ada');
    await shows(/23 of 24 assets/i, 30_000);
    expect(await page.evaluate('[document.activeElement.type, document.activeElement.value]')).toEqual([
      'search',
      'ada',
    ]);
    // Told every two seconds, while it takes more than five.
    const seen = (await page.evaluate('[...seen]')) as string[];
    expect(seen.filter((part) => /^\d/.test(part ?? '')).length).toBeGreaterThanOrEqual(2);
    await shows('The asset failed');
    await scene.admin.clearFaults();
  });

  test('one project is synced again', async () => {
    await page.evaluate(`location.hash = '#/connections/${scene.connectionId}'`);
    await press('Sync …');
    await page.click('input[value=part]');
    await page.type('input[name=projectId]', 'campaign');
    await page.keyboard.press('Enter');
    await shows('project campaign');
    const { syncs } = await scene.mirror.api('GET', `/syncs?connectionId=${scene.connectionId}`);
    expect(syncs[0]).toMatchObject({ mode: 'full', scope: { projectId: 'campaign' } });
  });

  test('what has failed says why, and is tried again', async () => {
    await shows(/asset\.download\.url/);
    // The run before asks for what had failed, too.
    await scene.checked();
    await scene.mirror.assetIn(broken, 'failed');
    await scene.admin.changeAsset(broken, { overrideDetail: {} } as never);
    await page.click(`button[aria-label="Retry Broken cut.mov"]`);
    await shows('Nothing has failed.');
    await scene.mirror.assetIn(broken, 'mirrored');
  });

  test('settings say what was left out', async () => {
    await press('Settings …');
    await page.type('input[name="exclude.assetTypes"]', 'videos');
    expect(await flawsOf(page)).toEqual([]);
    await page.keyboard.press('Enter');
    await shows('The settings are changed');
    const { settings } = await scene.mirror.api('GET', `/connections/${scene.connectionId}`);
    expect(settings).toMatchObject({ exclude: { assetTypes: ['videos'] }, own: ['exclude.assetTypes'] });
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { exclude: null });
  });

  test('a connection is ended after a question, and its user connects again by a link', async () => {
    await press('Disconnect …');
    await shows(/What is in the bucket stays/);
    await page.keyboard.press('Escape');
    expect((await scene.mirror.api('GET', `/connections/${scene.connectionId}`)).status).toBe('active');
    await press('Disconnect …');
    await press('Disconnect');
    await shows('Disconnected.');
    await shows('Its user has to connect again.');
    await press('Reconnect link');
    await page.waitForSelector('#link');
    const link = await page.$eval('#link', (field) => (field as unknown as { value: string }).value);
    expect((await newBrowser().visit(link)).status).toBe(200);
    await press('Close');
    await shows('Up to date', 30_000);
  });

  test('the queues can be looked at', async () => {
    await page.goto(`${scene.ground.publicUrl}/queues/queue/assets?status=completed`);
    await shows(`mirror-asset ${broken}`);
    await picture('queues');
  });

  test.each([
    ['overview', '#/', 'Up to date'],
    ['connection', 'connection', 'Sync now'],
    ['assets', '#/assets', 'Launch film.mp4'],
    ['asset', 'asset', 'What happened'],
    ['activity', '#/activity', 'An operator signed in'],
  ])('%s: every text can be read, everything has a name and fits, in light and dark', async (name, hash, words) => {
    const places: Record<string, string> = {
      connection: `#/connections/${scene.connectionId}`,
      asset: `#/assets/${broken}`,
    };
    const flaws: string[] = [];
    for (const [width, isDark] of [
      [1280, false],
      [1280, true],
      [360, true],
    ] as const) {
      await dress(page, { width, isDark });
      await page.goto(`${scene.ground.publicUrl}/${places[hash] ?? hash}`);
      await shows(words);
      await shows('Live');
      // What fits itself to its room has done so with the next frame but one.
      await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
      flaws.push(...(await flawsOf(page)).map((flaw) => `${width}${isDark ? ' dark' : ''}: ${flaw}`));
      await picture(`${name}-${width}${isDark ? '-dark' : ''}`);
    }
    expect(flaws).toEqual([]);
  });
});

async function dress(on: Page, { width, isDark = false }: { width: number; isDark?: boolean }): Promise<void> {
  await on.setViewport({ width, height: width < 500 ? 780 : 900, deviceScaleFactor: width < 500 ? 2 : 1 });
  await on.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: isDark ? 'dark' : 'light' }]);
}

async function open(screen: { width: number }): Promise<Page> {
  const opened = await context.newPage();
  await dress(opened, screen);
  opened.on('console', (message) => {
    if (['error', 'warn'].includes(message.type()))
      complaints.push(`${message.text()} ${message.location().url ?? ''}`);
  });
  opened.on('pageerror', (error) => complaints.push(String(error)));
  return opened;
}

/** The button that says this, once it is there. */
const press = (label: string) => page.locator(`xpath/.//button[normalize-space()="${label}"]`).click();

const text = (): Promise<string> => page.evaluate('document.body.innerText') as Promise<string>;

async function shows(words: string | RegExp, timeoutMs = 15_000): Promise<void> {
  let last = '';
  await until(
    `the page to show ${words}`,
    async () => {
      last = await text();
      return typeof words === 'string' ? last.includes(words) : words.test(last);
    },
    timeoutMs,
  ).catch((error) => {
    throw new Error(`${error.message}\nit shows:\n${last}\n${complaints.join('\n')}`);
  });
}

async function picture(name: string): Promise<void> {
  if (PICTURES === undefined) return;
  await mkdir(PICTURES, { recursive: true });
  await page.screenshot({ path: join(PICTURES, `${name}.png`) as `${string}.png`, fullPage: true });
}
