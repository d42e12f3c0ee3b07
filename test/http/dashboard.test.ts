// @module-tag slow
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import type { Browser, BrowserContext, Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { newBrowser } from '../support/browser.ts';
import { chromium, flawsOf, skipped, startChromium } from '../support/chromium.ts';
import { dress, handsOn, openPage } from '../support/dashboard.ts';
import { ask } from '../support/database.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { newStage } from '../support/stage.ts';
import { until } from '../support/until.ts';
import { startReceiver } from '../webhooks/receiver.ts';

/** A directory for pictures of every view; without it, none are taken. */
const PICTURES = process.env.DASHBOARD_PICTURES;

let scene: Scene;
let chrome: Browser;
let context: BrowserContext;
let page: Page;
let broken: string;
/** The addresses of a verification and of a webhook endpoint. */
let verification: string;
let webhook: string;
/** The erased asset: its page may be refreshed once more, and the browser reports that 404 with a delay. */
let erased: string | undefined;
let complaints: string[];
let hands: ReturnType<typeof handsOn>;

describe.skipIf(!chromium)(`the dashboard in a real browser${skipped}`, () => {
  beforeAll(async () => {
    [scene, chrome] = await Promise.all([
      newScene({
        environment: {
          ...{ CONNECTION_CONCURRENCY: '2', GONE_RETENTION: '30d', SEARCH_TRANSCRIPTS: 'true' },
          WEBHOOK_ALLOW_PRIVATE: 'true',
        },
        library: { transcriptDelay: 600_000 },
      }),
      startChromium(),
    ]);
    await scene.admin.addProject({ id: 'campaign', companyId: 'acme', name: 'Campaign' });
    context = await chrome.createBrowserContext();
    const opened = await openPage(context, { width: 1280 });
    ({ page, complaints } = opened);
    hands = handsOn(opened);
  });
  afterEach(() => {
    const found = complaints.splice(0);
    expect(found.filter((text) => erased === undefined || !text.includes(erased))).toEqual([]);
  });
  afterAll(async () => {
    await chrome?.close();
    await scene?.close();
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

  test('an operator filters projects by id while the library is away, and confirms unknown ones', async () => {
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

  test('the overview lists what is removed in the next week, and leads to what is held, which an operator accepts', async () => {
    const id = await scene.upload({ name: 'soon gone.txt' });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.admin.removeAsset(id);
    await scene.resync();
    await scene.mirror.assetIn(id, 'gone');
    const url = scene.ground.environment.DATABASE_URL!;
    await ask(url, `UPDATE assets SET gone_at = now() - interval '29 days' WHERE id = '${id}'`);
    const changes = { count: 12, known: 30, sample: [id], since: new Date() };
    await ask(url, `UPDATE access SET held = '${JSON.stringify({ removed: changes })}' WHERE company_id = 'acme'`);
    await page.evaluate(`location.hash = '#/'`);
    await shows('Removed in the next 7 days');
    await shows('soon gone.txt');
    await shows('GONE_RETENTION would remove 12 of 30 mirrored assets. No asset is removed until you accept this.');
    expect(await flawsOf(page)).toEqual([]);
    await tabTo('link', 'Acme is held');
    await page.keyboard.press('Enter');
    await tabTo('button', 'Accept the removal');
    await page.keyboard.press('Enter');
    await expect.poll(async () => (await scene.mirror.api('GET', '/removals')).heldCompanies).toEqual([]);
    await expect.poll(async () => (await text()).includes('GONE_RETENTION would remove')).toBe(false);
    await page.evaluate(`location.hash = '#/assets/${id}'`);
    await shows(/Its files are removed from the bucket after .* \(GONE_RETENTION\)/);
  });

  test('an operator protects an asset, releases it, and erases it after a confirmation', async () => {
    const id = await scene.upload({ name: 'to be erased.txt' });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await page.evaluate(`location.hash = '#/assets/${id}'`);
    await tabTo('button', 'Protect from removal');
    await page.keyboard.press('Enter');
    await shows('Protected from removal.');
    await tabTo('button', 'End protection');
    await page.keyboard.press('Enter');
    await shows('No longer protected from removal.');
    await tabTo('button', 'Erase …');
    await page.keyboard.press('Enter');
    await expect.poll(dialogs).toEqual(['Erase to be erased.txt?']);
    await shows(/It is never mirrored again\. This cannot be undone\./);
    await tabTo('textbox', 'Reason');
    await page.keyboard.type('requested by the owner');
    expect(await flawsOf(page)).toEqual([]);
    await tabTo('button', 'Erase for good');
    erased = id;
    await page.keyboard.press('Enter');
    await shows(/Erasure started\. Print the certificate: asset-mirror erasures/);
    await expect.poll(() => scene.keys(id)).toEqual([]);
    const { erasures } = await scene.mirror.api('GET', '/erasures');
    expect(erasures).toMatchObject([{ reason: 'requested by the owner', requestedBy: 'ADMIN_TOKEN' }]);
    await page.evaluate(`location.hash = '#/connections/${scene.connectionId}'`);
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

  test('an operator looks at a picture, plays a film, downloads it, and browses thumbnails', async () => {
    const sample = async (name: string) => ({
      name,
      content: { base64: await readFile(join('src/library/samples', name), 'base64') },
      thumbnail: true,
    });
    const picture = await scene.upload({ ...(await sample('square.jpg')), mimeType: 'image/jpeg' });
    const film = await scene.upload({ ...(await sample('story.mp4')), mimeType: 'video/mp4', assetType: 'videos' });
    await scene.resync();
    for (const id of [picture, film]) await scene.mirror.assetIn(id, 'mirrored');
    await page.evaluate(`location.hash = '#/assets/${picture}'`);
    await expect.poll(() => page.evaluate(`document.querySelector('.preview img')?.naturalWidth`)).toBeGreaterThan(100);
    await page.evaluate(`location.hash = '#/assets/${film}'`);
    await expect.poll(() => page.evaluate(`document.querySelector('video')?.duration`)).toBeGreaterThan(1);
    await page.evaluate(`document.querySelector('video').play()`);
    await expect.poll(() => page.evaluate(`document.querySelector('video').currentTime`)).toBeGreaterThan(0.2);
    const saved = await page.evaluate(
      `fetch([...document.querySelectorAll('a.button')].find((it) => it.innerText === 'Download').href)
        .then((answer) => answer.headers.get('content-disposition'))`,
    );
    expect(saved).toMatch(/^attachment; filename="?story\.mp4"?$/);

    await page.evaluate(`location.hash = '#/assets'`);
    await tabTo('button', 'Grid');
    await page.keyboard.press('Enter');
    const loaded = `[...document.querySelectorAll('.grid img')].filter((it) => it.naturalWidth > 0).length`;
    await expect.poll(() => page.evaluate(loaded)).toBeGreaterThan(1);
    expect(await page.evaluate('location.hash')).toBe('#/assets?view=grid');
    await tabTo('button', 'List');
    await page.keyboard.press('Enter');
    await expect.poll(() => page.evaluate('location.hash')).toBe('#/assets');
  });

  test('assets are filtered and sorted in the address, with counts, and downloaded as an archive', async () => {
    await page.evaluate(`location.hash = '#/assets'`);
    await shows(/Assets\s\d+/);
    await expect.poll(async () => (await optionsOf('Type')).join()).toMatch(/Videos \(\d+\)/);
    await choose('Type', 'videos');
    await expect.poll(() => page.evaluate('location.hash')).toBe('#/assets?type=videos');
    const { matching } = await scene.mirror.api('GET', '/asset-facets?type=videos');
    await shows(new RegExp(`Assets\\s${matching}\\b`));
    // The facet that is filtered by still shows the alternatives.
    await expect
      .poll(async () => (await optionsOf('Type')).filter((text) => /\(/.test(text)).length)
      .toBeGreaterThan(1);
    await choose('Sort', '-size');
    await expect.poll(() => page.evaluate('location.hash')).toBe('#/assets?type=videos&sort=-size');
    const href = await page.$eval(
      'a[download][href*="asset-zip"]',
      (link) => (link as unknown as { href: string }).href,
    );
    expect(href).toMatch(/\/api\/asset-zip\?type=videos$/);
    await press('Clear filters');
    await expect.poll(() => page.evaluate('location.hash')).toBe('#/assets');
    await expect
      .poll(() => page.$eval(fieldOf('Type'), (field) => (field as unknown as { value: string }).value))
      .toBe('');
    await page.evaluate(`location.hash = '#/assets?mimeType=image%2F*&minSize=10000000'`);
    await shows('No asset matches.');
    await shows('Uploaded before');
  });

  test('an operator searches spoken words, and the player starts where they were said', async () => {
    const film = await scene.upload({
      name: 'spoken.mp4',
      content: { base64: await readFile('src/library/samples/story.mp4', 'base64') },
      mimeType: 'video/mp4',
      assetType: 'videos',
      hasTranscript: true,
    });
    const vtt =
      'WEBVTT\n\n00:00.000 --> 00:01.000\nNothing of interest is said here.\n\n00:01.500 --> 00:02.000\nA penguin &amp; a rabbit\n';
    await scene.admin.changeAsset(film, {
      transcript: { language: 'en', durationSec: 3, text: 'A penguin', vtt, words: null },
    });
    await scene.resync();
    await until('the words', async () => (await scene.mirror.api('GET', '/assets?said=penguin')).assets.length === 1);
    await page.evaluate(`location.hash = '#/assets'`);
    await tabTo('searchbox', 'Spoken words');
    await page.keyboard.type('"a penguin"');
    await expect.poll(() => page.evaluate('location.hash')).toBe('#/assets?said=%22a+penguin%22');
    await expect.poll(() => page.evaluate(`document.querySelector('.hits mark')?.innerText`)).toBe('penguin');
    expect(await page.evaluate(`document.querySelector('.hits li').innerText`)).toBe('0:01 A penguin & a rabbit');
    await picture('assets-said');
    await page.evaluate(`document.querySelector('.hits a').click()`);
    await expect.poll(() => page.evaluate('location.hash')).toBe(`#/assets/${film}?at=1.5`);
    await expect.poll(() => page.evaluate(`document.querySelector('video')?.currentTime`)).toBeGreaterThanOrEqual(1.5);
  });

  test('the page of an asset that a filter skips says so', async () => {
    const change = (exclude: object | null) =>
      scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { exclude });
    await change({ projectIds: ['campaign'] });
    const id = await scene.upload({ name: 'skipped.pdf', projectId: 'campaign' });
    await scene.resync({ mode: 'incremental' });
    await scene.mirror.assetIn(id, 'pending');
    await page.evaluate(`location.hash = '#/assets/${id}'`);
    await shows('It is skipped by a filter');
    const state = () => page.$eval('.state', (it) => (it as { innerText: string }).innerText);
    await expect.poll(state).toBe('Skipped');
    await change(null);
    await expect.poll(state).toBe('Mirrored');
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

  test('every dialog is readable, named and fits in light and dark', async () => {
    await page.goto(`${scene.ground.publicUrl}/#/connections/${scene.connectionId}`);
    const flaws: string[] = [];
    for (const [label, words] of [
      ['Full or partial sync …', 'Campaign'],
      ['Plan', 'Unchanged'],
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

const text = () => hands.text();
const focused = () => hands.focused();
const dialogs = () => hands.dialogs();
const press = (label: string) => hands.press(label);
const tabTo = (role: string, name: string) => hands.tabTo(role, name);
const shows = (words: string | RegExp) => hands.shows(words);

const idOf = async (name: string): Promise<string> =>
  (await scene.mirror.api('GET', `/assets?q=${encodeURIComponent(name)}`)).assets[0].id;

async function pathOf(name: string): Promise<string> {
  const { key } = await scene.mirror.api('GET', `/assets/${await idOf(name)}`);
  return join(fileURLToPath(scene.ground.environment.STORAGE_URL!), key);
}

/** The choice with this label. */
const fieldOf = (label: string) => `xpath/.//label[span="${label}"]/select`;
const choose = async (label: string, value: string) => (await page.waitForSelector(fieldOf(label)))!.select(value);
const optionsOf = async (label: string): Promise<string[]> =>
  page.$$eval(`${fieldOf(label)}/option`, (options) => options.map((option) => option.textContent ?? ''));

async function picture(name: string): Promise<void> {
  if (PICTURES === undefined) return;
  await mkdir(PICTURES, { recursive: true });
  await page.screenshot({ path: join(PICTURES, `${name}.png`) as `${string}.png`, fullPage: true });
}
