// @module-tag slow
import type { Browser, Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { chromium, skipped, startChromium } from '../support/chromium.ts';
import { flawsOn, handsOn, openPage, signIn } from '../support/dashboard.ts';
import { ask } from '../support/database.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { startReceiver } from '../webhooks/receiver.ts';

let scene: Scene;
let chrome: Browser;
let page: Page;
let complaints: string[];
let hands: ReturnType<typeof handsOn>;
const names = ['Alpha.pdf', 'Beta.pdf', 'Delta.pdf', 'Gamma.pdf'];

describe.skipIf(!chromium)(`the dashboard, for what operators choose and change${skipped}`, () => {
  beforeAll(async () => {
    [scene, chrome] = await Promise.all([
      newScene({ environment: { WEBHOOK_ALLOW_PRIVATE: 'true' } }),
      startChromium(),
    ]);
    await scene.admin.addProject({ id: 'campaign', companyId: 'acme', name: 'Campaign' });
    const ids = await Promise.all(
      names.map((name) => scene.upload({ name, projectId: 'campaign', content: { text: name } })),
    );
    await scene.resync();
    for (const id of ids) await scene.mirror.assetIn(id, 'mirrored');
    const opened = await openPage(chrome, { width: 1280 });
    ({ page, complaints } = opened);
    hands = handsOn(opened);
    await signIn(page, scene.ground.publicUrl);
  });
  const refused = '?tag=wrong';
  const unknown = 'another';
  /** Asked for again until its page is left, and reported by the browser with a delay. */
  const expected = [refused, `/api/connections/${unknown}`, `connectionId=${unknown}`];
  afterEach(() => {
    expect(complaints.splice(0).filter((text) => !expected.some((part) => text.includes(part)))).toEqual([]);
  });
  afterAll(async () => {
    await chrome?.close();
    await scene?.close();
  });

  const go = (hash: string) => page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
  const hash = () => page.evaluate('location.hash') as Promise<string>;
  /** The problems of an open dialog or page, in three widths. */
  const flaws = () => flawsOn(page, [{ width: 1280 }, { width: 800 }, { width: 360, isDark: true }]);

  test('an operator adds a webhook endpoint with kinds and filters, and its secret is shown once', async () => {
    const own: string[] = [];
    const receiver = await startReceiver(own);
    await go('#/webhooks');
    await hands.shows('No webhook endpoint yet.');
    await hands.tabTo('button', 'Add endpoint …');
    await page.keyboard.press('Enter');
    await expect.poll(hands.dialogs).toEqual(['Add a webhook endpoint']);
    await hands.tabTo('textbox', 'Address');
    await page.keyboard.type(receiver.url);
    await hands.tabTo('textbox', 'Description');
    await page.keyboard.type('The archive');
    await hands.tabTo('checkbox', 'asset.mirrored Each asset that is mirrored');
    await page.keyboard.press('Space');
    await hands.tabTo('combobox', 'Connections');
    await page.keyboard.type(scene.connectionId);
    const suggested = (list: string) =>
      page.$$eval(`#${list}-list option`, (all) => all.map((one) => [one.getAttribute('value'), one.textContent]));
    await expect.poll(() => suggested('connectionIds')).toEqual([[scene.connectionId, 'Ada Lindqvist']]);
    expect(await suggested('companyIds')).toEqual([['acme', 'Acme']]);
    await hands.tabTo('combobox', 'Companies');
    await page.keyboard.type('acme, no such company');
    expect(await flaws()).toEqual([]);
    await hands.press('Add');
    await hands.shows('There is no such company or asset type: no such company.');
    // The browser reports the refusal, too.
    await until('the console message', () => complaints.splice(0).length > 0);
    await page.locator('input[name=companyIds]').fill('acme, ');
    await hands.press('Add');
    await expect.poll(hands.dialogs).toEqual(['Secret of the webhook endpoint']);
    expect(await flaws()).toEqual([]);
    const secret = await page.$eval('#copied', (field) => (field as unknown as { value: string }).value);
    expect(secret).toMatch(/^whsec_/);
    await hands.press('Copy');
    await hands.shows(/Copied|Selected/);
    await hands.tabTo('button', 'Close');
    await page.keyboard.press('Enter');
    await expect.poll(hands.focused).toEqual({ role: 'button', name: 'Add endpoint …' });

    own.push(secret);
    const { webhooks } = await scene.mirror.api('GET', '/webhooks');
    expect(webhooks).toMatchObject([
      {
        description: 'The archive',
        kinds: expect.arrayContaining(['asset.mirrored', 'sync.failed']),
        filters: { connectionIds: [scene.connectionId], companyIds: ['acme'] },
      },
    ]);
    const asset = await scene.upload({ name: 'For the archive.pdf' });
    await scene.resync({ mode: 'incremental' });
    await scene.mirror.assetIn(asset, 'mirrored');
    await until('the message', () => receiver.of('asset.mirrored').length > 0);
    expect(receiver.refused).toEqual([]);
    await receiver.close();
  });

  test('an operator changes, disables, enables and removes a webhook endpoint, and rotates its secret', async () => {
    await hands.tabTo('link', 'The archive');
    await page.keyboard.press('Enter');
    await hands.shows(/Only these connections\s+Ada Lindqvist/);
    await hands.shows(/Only these companies\s+Acme/);
    await hands.press('Change …');
    await expect.poll(hands.dialogs).toEqual(['Change The archive']);
    await hands.press('Save');
    await hands.shows('Nothing was changed.');
    await hands.press('Change …');
    await page.click('input[value="asset.mirrored"]');
    await page.locator('input[name=companyIds]').fill('');
    await page.locator('input[name=description]').fill('Second archive');
    await hands.press('Save');
    await hands.shows('The webhook endpoint was changed.');
    await hands.shows('Second archive');
    const one = async () => (await scene.mirror.api('GET', '/webhooks')).webhooks[0];
    const { id, kinds, filters } = await one();
    expect(kinds).not.toContain('asset.mirrored');
    expect(filters).toEqual({ connectionIds: [scene.connectionId] });

    await hands.press('Disable');
    await hands.shows('Disabled. Events that happen while it is disabled are never sent to it.');
    await hands.press('Enable');
    await hands.shows('Working');

    await hands.press('Rotate the secret …');
    await expect.poll(hands.dialogs).toEqual(['Rotate the secret of Second archive?']);
    await hands.press('Rotate the secret');
    await expect.poll(hands.dialogs).toEqual(['Secret of the webhook endpoint']);
    await page.keyboard.press('Escape');
    await hands.shows('Old secret also signs until');
    expect((await one()).oldSecretUntil).not.toBeNull();

    await hands.press('Remove …');
    await expect.poll(hands.dialogs).toEqual(['Remove Second archive?']);
    expect(await flaws()).toEqual([]);
    await page.keyboard.press('Escape');
    await expect.poll(hands.focused).toEqual({ role: 'button', name: 'Remove …' });
    await page.keyboard.press('Enter');
    expected.push(`/api/webhooks/${id}`);
    await hands.press('Remove');
    await hands.shows('No webhook endpoint yet.');
    expect(await one()).toBeUndefined();
  });

  test('connections are filtered by tag, state and name in the address, and by a click on a tag', async () => {
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { tags: { client: 'Acme Ltd' } });
    await go('#/');
    await hands.tabTo('link', 'client=Acme Ltd');
    await page.keyboard.press('Enter');
    await expect.poll(hash).toBe('#/?tag=client%3DAcme+Ltd');
    await hands.shows('Ada Lindqvist');
    await expect
      .poll(() => page.$eval('.tag-field', (field) => (field as unknown as { value: string }).value))
      .toBe('client=Acme Ltd');
    expect(await flaws()).toEqual([]);
    await hands.tabTo('link', 'Assets of these connections');
    await page.keyboard.press('Enter');
    await hands.shows('Gamma.pdf');
    expect(await hash()).toBe('#/assets?connectionTag=client%3DAcme+Ltd');

    await go('#/?tag=client%3Dother');
    await hands.shows('No connection matches.');
    expect(await flaws()).toEqual([]);
    await hands.press('Clear filters');
    await expect.poll(hash).toBe('#/');
    await hands.shows('Ada Lindqvist');
    await hands.tabTo('searchbox', 'Search connections');
    await page.keyboard.type('nobody ');
    await expect.poll(hash).toBe('#/?q=nobody');
    await page.keyboard.type('here');
    await expect.poll(hash).toBe('#/?q=nobody+here');
    await go('#/?status=paused');
    await hands.shows('No connection matches.');
    await go(`#/${refused}`);
    await hands.shows('tag: expected');
    await until('the console message', () => complaints.some((text) => text.includes(refused)));
    await go('#/activity');
    await hands.shows('ADMIN_TOKEN signed in');
  });

  test('selected assets are counted, a range with Shift, and downloaded as an archive', async () => {
    await go('#/assets?sort=name');
    await hands.shows('Alpha.pdf');
    await hands.tabTo('checkbox', 'Select Alpha.pdf');
    await page.keyboard.press('Space');
    await hands.shows('1 asset selected, 9 B');
    await hands.tabTo('checkbox', 'Select Delta.pdf');
    await page.keyboard.down('Shift');
    await page.keyboard.press('Space');
    await page.keyboard.up('Shift');
    await hands.shows('3 assets selected, 26 B');
    expect(await page.$eval('.selection [role=status]', (it) => it.textContent)).toBe('3 assets selected, 26 B');
    expect(await flaws()).toEqual([]);
    // They stay selected in the grid, and when others are shown.
    await go('#/assets?view=grid&q=gamma');
    await hands.shows('Gamma.pdf');
    await expect.poll(async () => (await hands.text()).includes('Alpha.pdf')).toBe(false);
    await hands.tabTo('checkbox', 'Select all 1 shown');
    await page.keyboard.press('Space');
    await hands.shows('4 assets selected');
    expect(await flaws()).toEqual([]);
    const form = (await page.evaluate(
      `fetch('api/asset-zip', { method: 'POST', body: new URLSearchParams(new FormData(document.querySelector('.selection'))) })
        .then(async (answer) => [answer.status, new TextDecoder('latin1').decode(await answer.arrayBuffer())])`,
    )) as [number, string];
    expect(form[0]).toBe(200);
    for (const name of names) expect(form[1]).toContain(`Campaign/${name}`);
    await hands.tabTo('button', 'Clear');
    await page.keyboard.press('Enter');
    await expect.poll(async () => (await hands.text()).includes('selected')).toBe(false);
  });

  test('a selection without files in the bucket says so', async () => {
    await scene.admin.setFaults({ endpoint: 'media', status: 503 });
    await scene.upload({ name: 'Waits.pdf' });
    await scene.resync({ mode: 'incremental' });
    await go('#/assets?q=waits');
    await hands.tabTo('checkbox', 'Select Waits.pdf');
    await page.keyboard.press('Space');
    await hands.press('Download .zip');
    await hands.shows('No matching asset is in the bucket.');
    await until('the console message', () => complaints.splice(0).length > 0);
    await hands.press('Clear');
    await scene.admin.clearFaults();
  });

  test('a thousand assets are downloaded by a POST, which leaves no entry in the audit log', async () => {
    const { assets } = await scene.mirror.api('GET', '/assets?q=Alpha');
    const id = [assets[0].id, ...Array.from({ length: 999 }, (_, i) => `ast_${String(i).padStart(40, '0')}`)];
    const answer = await fetch(`${scene.ground.publicUrl}/api/asset-zip`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${scene.ground.environment.ADMIN_TOKEN}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ id }),
    });
    expect(answer.status).toBe(200);
    expect(Buffer.from(await answer.arrayBuffer()).toString('latin1')).toContain('Campaign/Alpha.pdf');
    const entries = `SELECT count(*)::int AS count FROM events WHERE kind LIKE 'operator.getAssetZip%'`;
    expect(await ask(scene.ground.environment.DATABASE_URL!, entries)).toEqual([{ count: 0 }]);
  });

  test('a late answer about a connection is not shown on the page of another one', async () => {
    const asked = `/api/connections/${scene.connectionId}`;
    await go('#/');
    await hands.shows('Ada Lindqvist');
    await page.evaluate(`{
      const ask = window.fetch;
      window.held = [];
      window.fetch = async (...request) => {
        const answer = await ask(...request);
        if (!String(request[0]).endsWith('${asked}')) return answer;
        await new Promise((resolve) => window.held.push(resolve));
        const json = await answer.json();
        return { ...answer, ok: true, status: 200, json: async () => { window.isRead = true; return json; } };
      };
    }`);
    await go(`#/connections/${scene.connectionId}`);
    await until('the answer to be held', () => page.evaluate('window.held.length > 0'));
    await go(`#/connections/${unknown}`);
    await hands.shows(`There is no connection ${unknown}.`);
    await page.evaluate('window.held.forEach((resolve) => resolve())');
    await until('the late answer to be read', () => page.evaluate('window.isRead === true'));
    await page.evaluate('new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))');
    expect(await hands.text()).toContain(`There is no connection ${unknown}.`);
    expect(await hands.text()).not.toContain('Ada Lindqvist');
    await page.reload();
  });
});
