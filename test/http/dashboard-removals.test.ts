// @module-tag slow
import type { Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { chromium, flawsOf, skipped } from '../support/chromium.ts';
import { signIn } from '../support/dashboard.ts';
import { ask } from '../support/database.ts';
import type { Scene } from '../support/scene.ts';
import { type Dashboard, handsOnLater, openDashboard } from './dashboard-scene.ts';

let dashboard: Dashboard;
let scene: Scene;
let page: Page;
let complaints: string[];
/** The erased asset: its page may be refreshed once more, and the browser reports that 404 with a delay. */
let erased: string | undefined;
const { text, dialogs, tabTo, shows } = handsOnLater(() => dashboard.hands);

describe.skipIf(!chromium)(`the dashboard in a real browser${skipped}`, () => {
  beforeAll(async () => {
    dashboard = await openDashboard();
    ({ scene, page, complaints } = dashboard);
    await signIn(page, scene.ground.publicUrl);
  });
  afterEach(() => {
    const found = complaints.splice(0);
    expect(found.filter((text) => erased === undefined || !text.includes(erased))).toEqual([]);
  });
  afterAll(async () => {
    await dashboard?.close();
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
});
