// @module-tag slow
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { chromium, flawsOf, skipped } from '../support/chromium.ts';
import { dress, signIn } from '../support/dashboard.ts';
import { ask } from '../support/database.ts';
import type { Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { startReceiver } from '../webhooks/receiver.ts';
import { type Dashboard, handsOnLater, openDashboard, takePicture } from './dashboard-scene.ts';

let dashboard: Dashboard;
let scene: Scene;
let page: Page;
let complaints: string[];
let broken: string;
/** The addresses of a verification and of a webhook endpoint. */
let verification: string;
let webhook: string;
const { text, focused, dialogs, press, tabTo, shows } = handsOnLater(() => dashboard.hands);
const picture = (name: string) => takePicture(page, name);

describe.skipIf(!chromium)(`the dashboard in a real browser${skipped}`, () => {
  beforeAll(async () => {
    dashboard = await openDashboard();
    ({ scene, page, complaints } = dashboard);
    await signIn(page, scene.ground.publicUrl);
  });
  afterEach(() => {
    expect(complaints.splice(0)).toEqual([]);
  });
  afterAll(async () => {
    await dashboard?.close();
  });

  test('the dashboard follows a running sync without a reload', async () => {
    broken = await scene.upload({
      name: 'Broken cut.mov',
      projectId: 'campaign',
      overrideDetail: { asset: { download: { url: 7 } } } as never,
    });
    for (let i = 0; i < 22; i++) await scene.upload({ name: `Poster ${i}.pdf`, projectId: 'campaign' });
    await scene.film({ name: 'Launch film.mp4' });
    await scene.admin.addFault({ endpoint: 'media', skip: 10, latency: 6000 });
    await page.waitForSelector('[aria-labelledby=connections-title] tbody a');
    await page.evaluate(`document.querySelector('[aria-labelledby=connections-title] tbody a').click()`);
    await press('Sync now');
    await shows('Sync started.');
    // A message disappears with its page.
    const notices = await page.evaluate(`new Promise((done) => {
      addEventListener('hashchange', () => done(document.querySelector('.toasts').innerText), { once: true });
      location.hash = '#/';
    })`);
    expect(notices).toBe('');
    await shows(/\b([1-9]|1\d) of 24 assets/i);
    // The focused element stays as it is during updates.
    await page.locator('input[type=search]').fill('ada');
    await scene.admin.clearFaults();
    await shows(/23 of 24 assets/i);
    expect(await page.evaluate('[document.activeElement.type, document.activeElement.value]')).toEqual([
      'search',
      'ada',
    ]);
    await shows('Broken cut.mov failed');
    // Nothing more is transferred, but not everything is mirrored.
    await shows('1 not mirrored');
    expect(await text()).not.toContain('All assets that have a file are mirrored.');
  });

  test('an operator syncs a project by its name, with the keyboard', async () => {
    await page.evaluate(`location.hash = '#/'; document.querySelector('input[type=search]').value = ''`);
    await tabTo('link', 'Ada Lindqvist');
    await page.keyboard.press('Enter');
    await shows('Not mirrored');
    await tabTo('button', 'Full or partial sync …');
    await page.keyboard.press('Enter');
    await expect.poll(dialogs).toEqual(['Sync Ada Lindqvist']);
    await expect.poll(focused).toEqual({ role: 'radio', name: expect.stringMatching(/^Incremental/) });
    await page.keyboard.press('Escape');
    await expect.poll(dialogs).toEqual([]);
    await expect.poll(focused).toEqual({ role: 'button', name: 'Full or partial sync …' });
    await page.keyboard.press('Enter');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await expect.poll(focused).toEqual({ role: 'radio', name: expect.stringMatching(/^A part/) });
    await page.waitForSelector('select[name=project]:not([disabled])');
    await tabTo('combobox', 'Project');
    await page.keyboard.type('Camp');
    await tabTo('button', 'Sync now');
    await page.keyboard.press('Enter');
    await shows('Project campaign');
    await expect.poll(focused).toEqual({ role: 'button', name: 'Full or partial sync …' });
    const { syncs } = await scene.mirror.api('GET', `/syncs?connectionId=${scene.connectionId}`);
    expect(syncs[0]).toMatchObject({ mode: 'full', scope: { companyId: 'acme', projectId: 'campaign' } });
  });

  test('the dashboard shows why an asset failed, and an operator retries it', async () => {
    await shows(/asset\.download\.url/);
    // The previous sync also retries failed assets.
    await scene.checked();
    await scene.mirror.assetIn(broken, 'failed');
    await scene.admin.changeAsset(broken, { overrideDetail: {} } as never);
    await tabTo('button', 'Retry Broken cut.mov');
    await page.keyboard.press('Enter');
    await shows('No failed assets.');
    await scene.mirror.assetIn(broken, 'mirrored');
    // The button no longer exists; the focus stays near it.
    await expect.poll(focused).toEqual({ role: 'heading', name: 'Not mirrored' });
  });

  test('an operator verifies library, database and bucket, every byte', async () => {
    await page.evaluate(`location.hash = '#/'`);
    await tabTo('button', 'Verify …');
    await page.keyboard.press('Enter');
    await expect.poll(dialogs).toEqual(['Verify everything']);
    await page.keyboard.press('ArrowDown');
    await expect.poll(focused).toEqual({ role: 'radio', name: expect.stringMatching(/^Every byte/) });
    await tabTo('button', 'Verify');
    await page.keyboard.press('Enter');
    await shows('comparing every byte');
    verification = (await page.evaluate('location.hash')) as string;
    await shows(/No differences/);
    await shows('No differences found.');
    await rm(await pathOf('Poster 3.pdf'));
    await tabTo('link', 'Overview');
    await page.keyboard.press('Enter');
    await tabTo('button', 'Verify …');
    await page.keyboard.press('Enter');
    await tabTo('button', 'Verify');
    await page.keyboard.press('Enter');
    await shows(/1 difference\b/);
    await shows('Poster 3.pdf');
    await tabTo('button', 'Repair');
    await page.keyboard.press('Enter');
    await shows('Repairs started');
    await until(
      'the file to be there again',
      async () => (await scene.media(await idOf('Poster 3.pdf'))) !== undefined,
    );
  });

  test('the page of an asset lists its superseded files', async () => {
    await scene.admin.changeAsset(broken, { content: { text: 'the second cut' } });
    await scene.resync();
    await until('the first cut to be kept', async () => {
      const { versions } = await scene.mirror.api('GET', `/assets/${broken}/versions`);
      return versions.length === 1;
    });
    await scene.mirror.assetIn(broken, 'mirrored');
    await page.evaluate(`location.hash = '#/assets/${broken}'`);
    await shows('Superseded files');
    await shows('The library has another file: its size changed');
    await page.evaluate(`location.hash = '#/'`);
    await shows(/in 1 superseded file/);
  });

  test('an operator sends a test message to a webhook endpoint, and redelivers what failed', async () => {
    const own: string[] = [];
    const receiver = await startReceiver(own);
    const { id, secret } = await scene.mirror.api('POST', '/webhooks', {
      url: receiver.url,
      description: 'The archive',
      kinds: ['asset.mirrored'],
    });
    own.push(secret);
    webhook = `#/webhooks/${id}`;
    receiver.answer((response) => response.writeHead(500).end());
    const asset = await scene.upload({ name: 'For the archive.pdf' });
    await scene.resync({ mode: 'incremental' });
    await scene.mirror.assetIn(asset, 'mirrored');
    await until('the message', () => receiver.of('asset.mirrored').length > 0);
    await page.goto(`${scene.ground.publicUrl}/#/webhooks`);
    await shows('Failing');
    await tabTo('link', 'The archive');
    await page.keyboard.press('Enter');
    await shows(/the endpoint answered 500 · attempt \d/);
    await shows('For the archive.pdf');
    await press('Send test');
    await shows('The webhook endpoint did not accept the test message: the endpoint answered 500.');

    receiver.answer((response) => response.writeHead(204).end());
    const [message] = receiver.of('asset.mirrored');
    await tabTo('button', `Redeliver ${message!.id}`);
    await page.keyboard.press('Enter');
    await shows('Sending the message again.');
    await shows(/Delivered\s+For the archive/);
    expect(new Set(receiver.of('asset.mirrored').map((one) => one.id))).toEqual(new Set([message!.id]));

    await ask(scene.ground.environment.DATABASE_URL!, `UPDATE webhook_deliveries SET state = 'failed'`);
    await press('Failed');
    await shows(message!.id);
    const before = receiver.of('asset.mirrored').length;
    await press('Redeliver failed …');
    await expect.poll(dialogs).toEqual(['Redeliver failed messages']);
    await page.$eval('input[name=since]', (input) => {
      (input as unknown as { value: string }).value = '2026-01-01T00:00';
    });
    await press('Send again');
    await shows('Sending 1 message again.');
    await until('it to arrive', () => receiver.of('asset.mirrored').length > before);
    await shows('No messages.');
    expect(receiver.refused).toEqual([]);
    await receiver.close();
  });

  test('an operator opens the queue dashboard', async () => {
    await page.goto(`${scene.ground.publicUrl}/queues/queue/assets?status=completed`);
    await shows(/(mirror-asset|follow-up) ast_\w+/);
    await picture('queues');
    await page.click('a.back');
    await shows('Live');
  });

  test.each([
    ['overview', '#/', 'Up to date'],
    ['connection', 'connection', 'Sync now'],
    ['assets', '#/assets', 'Launch film.mp4'],
    ['grid', '#/assets?view=grid', 'Launch film.mp4'],
    ['asset', 'asset', 'History'],
    ['activity', '#/activity', 'ADMIN_TOKEN signed in'],
    ['verifications', '#/verify', 'By an operator'],
    ['verification', 'verification', 'No differences'],
    ['webhooks', '#/webhooks', 'The archive'],
    ['webhook', 'webhook', 'Delivered'],
  ])('the page %s is readable, named and fits in light and dark', async (name, hash, words) => {
    const places: Record<string, string> = {
      connection: `#/connections/${scene.connectionId}`,
      asset: `#/assets/${broken}`,
      verification,
      webhook,
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
      // Elements adapt to their container within two frames.
      await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
      flaws.push(...(await flawsOf(page)).map((flaw) => `${width}${isDark ? ' dark' : ''}: ${flaw}`));
      await picture(`${name}-${width}${isDark ? '-dark' : ''}`);
    }
    expect(flaws).toEqual([]);
  });
});

const idOf = async (name: string): Promise<string> =>
  (await scene.mirror.api('GET', `/assets?q=${encodeURIComponent(name)}`)).assets[0].id;

async function pathOf(name: string): Promise<string> {
  const { key } = await scene.mirror.api('GET', `/assets/${await idOf(name)}`);
  return join(fileURLToPath(scene.ground.environment.STORAGE_URL!), key);
}
