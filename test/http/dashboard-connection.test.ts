// @module-tag slow
import { rename, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import type { Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { newBrowser } from '../support/browser.ts';
import { chromium, flawsOf, skipped } from '../support/chromium.ts';
import { dress, signIn } from '../support/dashboard.ts';
import type { Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { type Dashboard, handsOnLater, openDashboard, takePicture } from './dashboard-scene.ts';

let dashboard: Dashboard;
let scene: Scene;
let page: Page;
let complaints: string[];
const { text, focused, dialogs, press, tabTo, shows } = handsOnLater(() => dashboard.hands);
const picture = (name: string) => takePicture(page, name);

describe.skipIf(!chromium)(`the dashboard in a real browser${skipped}`, () => {
  beforeAll(async () => {
    dashboard = await openDashboard();
    ({ scene, page, complaints } = dashboard);
    const id = await scene.upload({ name: 'Poster.pdf', projectId: 'campaign' });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.checked();
    await signIn(page, scene.ground.publicUrl);
  });
  afterEach(() => {
    expect(complaints.splice(0)).toEqual([]);
  });
  afterAll(async () => {
    await dashboard?.close();
  });

  test('an operator chooses filters by name, and refused settings are named by their labels', async () => {
    await page.evaluate(`location.hash = '#/connections/${scene.connectionId}'`);
    await press('Settings …');
    await page.waitForSelector('select[name="exclude.projectIds"]:not([disabled])');
    await page.select('select[name="exclude.projectIds"]', 'campaign');
    await page.select('select[name="exclude.assetTypes"]', 'videos');
    await page.select('select[name="exclude.assetTypes"]', 'brand assets');
    await page.select('select[name="include.companyIds"]', 'acme');
    await shows('Campaign ×');
    await shows('Acme ×');
    expect(await flawsOf(page)).toEqual([]);
    await press('Videos ×');
    await expect.poll(focused).toMatchObject({ role: 'combobox', name: 'Types' });
    await page.type('input[name="syncInterval"]', 'often');
    await page.type('input[name="concurrency"]', 'many');
    await press('Save');
    await shows(
      /Time between syncs: expected .*15m.*; Maximum assets at once: expected a whole number from 1 to 1000\./,
    );
    // The browser reports the refusal, too.
    await until('the console message', () => complaints.length > 0);
    expect(complaints.splice(0)).toEqual([expect.stringContaining('400 (Bad Request)')]);
    for (const name of ['syncInterval', 'concurrency']) await page.locator(`input[name="${name}"]`).fill('');
    await page.type('textarea[name="tags"]', 'client=Acme, Inc.');
    await press('Save');
    await shows('Settings changed');
    const { settings } = await scene.mirror.api('GET', `/connections/${scene.connectionId}`);
    expect((await scene.mirror.api('GET', `/connections/${scene.connectionId}`)).tags).toEqual({
      client: 'Acme, Inc.',
    });
    await shows('client=Acme, Inc.');
    expect(settings).toMatchObject({
      include: { companyIds: ['acme'] },
      exclude: { projectIds: ['campaign'], assetTypes: ['brand assets'] },
      own: ['exclude.assetTypes', 'exclude.projectIds', 'include.companyIds'],
    });
    await press('Settings …');
    await shows('Campaign ×');
    await press('Campaign ×');
    await press('Brand assets ×');
    await press('Acme ×');
    await page.locator('textarea[name="tags"]').fill('');
    await press('Save');
    await until('the settings to be the default again', async () => {
      const { settings } = await scene.mirror.api('GET', `/connections/${scene.connectionId}`);
      return settings.own.length === 0;
    });
    // Then the full sync is requested that the change needs.
    await expect.poll(dialogs).toEqual([]);
    await scene.checked();
    await page.reload();
  });

  test('an operator accepts the replaced files of a held company', async () => {
    const database = new pg.Client({ connectionString: scene.ground.environment.DATABASE_URL! });
    await database.connect();
    const changes = { count: 60, known: 60, sample: ['ast_1'], since: new Date().toISOString() };
    await database.query(`UPDATE access SET held = $1 WHERE company_id = 'acme'`, [{ replaced: changes }]);
    await page.goto(`${scene.ground.publicUrl}/#/connections/${scene.connectionId}`);
    await page.reload();
    await shows(/Acme is held: the library has other files for 60 of 60 mirrored assets/);
    await press('Accept the new files');
    await until('the sync', async () => {
      const { syncs } = await scene.mirror.api('GET', `/syncs?connectionId=${scene.connectionId}`);
      return syncs.some(({ scope }: { scope: object }) => 'acceptReplaced' in scope);
    });
    await until('the company to be no longer held', async () => {
      const { companies } = await scene.mirror.api('GET', `/connections/${scene.connectionId}`);
      return companies.every(({ held }: { held: object[] }) => held.length === 0);
    });
    await database.end();
  });

  test('an operator filters projects by id while the library is not available, and confirms unknown ones', async () => {
    await scene.admin.setFaults({ endpoint: 'projects', status: 500 });
    await press('Settings …');
    await shows('The library does not list its projects now.');
    // The browser reports what is refused, too.
    await until('the console message', () => complaints.splice(0).length > 0);
    await page.type('fieldset:nth-of-type(3) input', 'nope');
    await press('Save');
    await shows('Skip these, Projects: nope is unknown.');
    await until('the console message', () => complaints.splice(0).length > 0);
    expect(await flawsOf(page)).toEqual([]);
    await press('Save anyway');
    await shows('Settings changed');
    const { settings } = await scene.mirror.api('GET', `/connections/${scene.connectionId}`);
    expect(settings.exclude.projectIds).toEqual(['nope']);
    await scene.admin.clearFaults();
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { exclude: null });
    await page.reload();
  });

  test('the dashboard shows an error that begins with a name as it is', async () => {
    const { connectionId } = scene;
    const data = { reason: 'icon set 42: the listing was cut off' };
    await scene.mirror.store.events.add({ kind: 'sync.failed', connectionId, data });
    const command = { reason: 'disconnected; see `asset-mirror connect-link`' };
    await scene.mirror.store.events.add({ kind: 'sync.failed', connectionId, data: command });
    await page.evaluate(`location.hash = '#/activity'`);
    await shows(data.reason);
    await shows('disconnected; see asset-mirror connect-link');
    await page.evaluate(`location.hash = '#/connections/${connectionId}'`);
    await shows('Not mirrored');
  });

  test('an operator disconnects a connection after a confirmation, and its user reconnects by a link', async () => {
    await tabTo('button', 'Disconnect …');
    await page.keyboard.press('Enter');
    await expect.poll(dialogs).toEqual(['Disconnect Ada Lindqvist?']);
    await shows(/The bucket keeps its files/);
    await expect.poll(focused).toEqual({ role: 'button', name: 'Cancel' });
    await page.keyboard.press('Escape');
    await expect.poll(focused).toEqual({ role: 'button', name: 'Disconnect …' });
    expect((await scene.mirror.api('GET', `/connections/${scene.connectionId}`)).status).toBe('active');
    await page.keyboard.press('Enter');
    await tabTo('button', 'Disconnect');
    await page.keyboard.press('Enter');
    await shows('Disconnected.');
    await shows('The user must connect again.');
    expect(await text()).not.toMatch(/Next sync|Assets at once|slowed down/);
    await expect.poll(focused).toEqual({ role: 'heading', name: 'Ada Lindqvist' });
    await tabTo('button', 'Reconnect link');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#copied');
    const link = await page.$eval('#copied', (field) => (field as unknown as { value: string }).value);
    expect((await newBrowser().visit(link)).status).toBe(200);
    await tabTo('button', 'Close');
    await page.keyboard.press('Enter');
    await shows('Up to date');
  });

  test('a notice of the dashboard covers no content on a phone', async () => {
    await dress(page, { width: 360 });
    await page.evaluate('scrollTo(0, 200)');
    await press('Sync now');
    await shows('Sync started.');
    const [notice, top] = (await page.evaluate(
      `['.toasts', '.top'].map((name) => document.querySelector(name).getBoundingClientRect().bottom)`,
    )) as number[];
    expect(notice).toBeLessThanOrEqual(top!);
    await page.evaluate('scrollTo(0, 0)');
    const [end, start] = (await page.evaluate(
      `[document.querySelector('.toasts').getBoundingClientRect().bottom, document.querySelector('main').getBoundingClientRect().top]`,
    )) as number[];
    expect(end).toBeLessThanOrEqual(start!);
    await dress(page, { width: 1280 });
  });

  test('the page of a connection says that the bucket is unavailable', async () => {
    const bucket = fileURLToPath(scene.ground.environment.STORAGE_URL!);
    await rename(bucket, `${bucket}.aside`);
    await writeFile(bucket, '');
    await page.evaluate(`location.hash = '#/connections/${scene.connectionId}'`);
    await shows(/The bucket is unavailable, so all assets wait:.*a file has the path/);
    await rm(bucket);
    await rename(`${bucket}.aside`, bucket);
    await expect.poll(async () => (await text()).includes('The bucket is unavailable')).toBe(false);
  });

  test('every dialog is readable, named and fits in light and dark', async () => {
    await page.goto(`${scene.ground.publicUrl}/#/connections/${scene.connectionId}`);
    const flaws: string[] = [];
    for (const [label, words] of [
      ['Full or partial sync …', 'Campaign'],
      ['Plan', 'In the bucket, unchanged'],
      ['Verify …', 'Every byte'],
      ['Settings …', 'Bandwidth'],
      ['Reconnect link', 'It works until'],
      ['Disconnect …', 'The bucket keeps its files'],
    ] as const) {
      await press(label);
      if (label === 'Full or partial sync …') await page.click('input[value=part]');
      await page.waitForFunction(`document.querySelector('dialog').textContent.includes('${words}')`);
      for (const [width, isDark] of [
        [1280, false],
        [360, true],
      ] as const) {
        await dress(page, { width, isDark });
        flaws.push(...(await flawsOf(page)).map((flaw) => `${label} ${width}: ${flaw}`));
        await picture(`dialog-${label.split(' ')[0]!.toLowerCase()}-${width}`);
      }
      await page.keyboard.press('Escape');
      await expect.poll(dialogs).toEqual([]);
    }
    expect(flaws).toEqual([]);
  });

  test('the dashboard shows tags, and bandwidth limits with their timetables', async () => {
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, {
      tags: { client: 'Acme Ltd', note: 'long '.repeat(19).trim() },
      bandwidth: '00:00-24:00 1GiB/s, else unlimited Europe/Berlin',
    });
    await scene.mirror.api('PATCH', '/settings', { bandwidth: 'Mon-Sun 2GiB/s, else unlimited' });
    const overview = ['client=Acme Ltd', 'Bandwidth now: 2.0 GiB/s per process · Mon-Sun 2GiB/s, else unlimited'];
    const connection = [
      'client=Acme Ltd',
      '1.0 GiB/s per process, by the timetable 00:00-24:00 1GiB/s, else unlimited',
    ];
    for (const [path, texts] of [
      ['', overview],
      [`connections/${scene.connectionId}`, connection],
    ] as const) {
      for (const width of [1280, 360]) {
        await dress(page, { width, isDark: width === 360 });
        await page.goto(`${scene.ground.publicUrl}/#/${path}`);
        for (const text of texts) await shows(text);
        expect(await flawsOf(page)).toEqual([]);
      }
    }
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { tags: null, bandwidth: null });
    await scene.mirror.api('PATCH', '/settings', { bandwidth: null });
  });
});
