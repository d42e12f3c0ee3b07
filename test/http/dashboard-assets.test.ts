// @module-tag slow
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { chromium, skipped } from '../support/chromium.ts';
import { signIn } from '../support/dashboard.ts';
import type { Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { type Dashboard, handsOnLater, openDashboard, takePicture } from './dashboard-scene.ts';

let dashboard: Dashboard;
let scene: Scene;
let page: Page;
let complaints: string[];
const { press, tabTo, shows } = handsOnLater(() => dashboard.hands);
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

  test('a size of which nothing is known is unknown, and an empty file has 0 B', async () => {
    const shown = `import(new URL('format.js', document.querySelector('script[type=module]').src))
      .then(({ bytes }) => [null, 0, 1536].map(bytes))`;
    expect(await page.evaluate(shown)).toEqual(['unknown', '0 B', '1.5 KiB']);
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
});

/** The choice with this label. */
const fieldOf = (label: string) => `xpath/.//label[span="${label}"]/select`;
const choose = async (label: string, value: string) => (await page.waitForSelector(fieldOf(label)))!.select(value);
const optionsOf = async (label: string): Promise<string[]> =>
  page.$$eval(`${fieldOf(label)}/option`, (options) => options.map((option) => option.textContent ?? ''));
