// @module-tag slow
import type { Browser, Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { chromium, flawsOf, skipped } from '../support/chromium.ts';
import { dress } from '../support/dashboard.ts';
import type { Scene } from '../support/scene.ts';
import { newStage } from '../support/stage.ts';
import { until } from '../support/until.ts';
import { type Dashboard, handsOnLater, openDashboard } from './dashboard-scene.ts';

let dashboard: Dashboard;
let scene: Scene;
let chrome: Browser;
let page: Page;
let complaints: string[];
const { focused, shows } = handsOnLater(() => dashboard.hands);

describe.skipIf(!chromium)(`the dashboard in a real browser${skipped}`, () => {
  beforeAll(async () => {
    dashboard = await openDashboard();
    ({ scene, chrome, page, complaints } = dashboard);
  });
  afterEach(() => {
    expect(complaints.splice(0)).toEqual([]);
  });
  afterAll(async () => {
    await dashboard?.close();
  });

  test('the dashboard asks for the token, and shows the overview', async () => {
    await page.goto(`${scene.ground.publicUrl}/`);
    // Everything here is done with a keyboard and a screen reader.
    await expect.poll(focused).toEqual({ role: 'textbox', name: 'Token' });
    await page.keyboard.type('another');
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    await shows('This token is wrong.');
    await expect.poll(focused).toEqual({ role: 'textbox', name: 'Token' });
    // The browser logs each refusal to its console, with a delay.
    await until('the console message', () => complaints.length > 0);
    expect(complaints.splice(0)).toEqual([expect.stringContaining('401')]);
    await page.keyboard.type('the-token-of-the-operators');
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    await shows('Live');
    await shows('No assets yet');
    await page.keyboard.press('Tab');
    await expect.poll(focused).toEqual({ role: 'link', name: 'Skip to the content' });
  });

  test('the dashboard shows the page that was asked for after the sign-in with a wrong and then the right token', async () => {
    const other = await chrome.createBrowserContext();
    try {
      const asked = await other.newPage();
      asked.setDefaultTimeout(180_000);
      await asked.goto(`${scene.ground.publicUrl}/#/assurance`);
      for (const token of ['another', 'the-token-of-the-operators']) {
        await asked.type('input[name=token]', token);
        await Promise.all([asked.waitForNavigation(), asked.keyboard.press('Enter')]);
      }
      await asked.waitForSelector('#assurance-title');
      expect(new URL(asked.url()).hash).toBe('#/assurance');
      // The session has ended: the sign-in is given the page, as a provider needs it.
      await other.deleteCookie(...(await other.cookies()));
      await asked.evaluate(`location.hash = '#/verify'`);
      await asked.waitForSelector('input[name=token]');
      expect(new URL(asked.url()).searchParams.get('to')).toBe('/#/verify');
    } finally {
      await other.close();
    }
  });

  test('the dashboard shows Connect first if there is no connection', async () => {
    const stage = await newStage();
    const other = await chrome.createBrowserContext();
    try {
      const first = await other.newPage();
      first.setDefaultTimeout(180_000);
      await first.goto(`${stage.ground.publicUrl}/`);
      await first.type('input[name=token]', 'the-token-of-the-operators');
      await Promise.all([first.waitForNavigation(), first.keyboard.press('Enter')]);
      const headings = () => first.$$eval('main h2', (all) => all.map((it) => (it as { innerText: string }).innerText));
      await expect.poll(async () => (await headings()).slice(0, 3)).toEqual(['Connections', 'Mirrored', 'Throughput']);
    } finally {
      await other.close();
      await stage.close();
    }
  });

  test('the sign-in form is readable, named and fits in light and dark', async () => {
    const other = await chrome.createBrowserContext();
    const form = await other.newPage();
    form.setDefaultTimeout(180_000);
    for (const isDark of [false, true]) {
      await dress(form, { width: 360, isDark });
      await form.goto(`${scene.ground.publicUrl}/sign-in`);
      expect(await flawsOf(form)).toEqual([]);
    }
    await other.close();
  });
});
