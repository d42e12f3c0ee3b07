// @module-tag slow
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'puppeteer-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { chromium, skipped, startChromium } from '../support/chromium.ts';
import { flawsOn, handsOn, openPage } from '../support/dashboard.ts';
import { type OpenIdProvider, startOpenIdProvider } from '../support/openid-provider.ts';
import { newScene, type Scene } from '../support/scene.ts';

const accounts = {
  vera: { groups: ['everyone'], email: 'vera@example.com' },
  olga: { groups: ['media-ops'], email: 'olga@example.com' },
  adam: { groups: ['platform'], email: 'adam@example.com' },
  nora: { groups: ['others'], email: 'nora@example.com' },
};

let directory: string;
let provider: OpenIdProvider;
let scene: Scene;
let asset: string;
let chrome: Browser;

describe.skipIf(!chromium)(`the dashboard of operators with roles${skipped}`, () => {
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'asset-mirror-downloads-'));
    const withProvider = async ({ PUBLIC_URL: publicUrl }: Record<string, string>): Promise<Record<string, string>> => {
      const redirectUri = `${publicUrl}/sign-in/callback`;
      provider = await startOpenIdProvider({ accounts, redirectUri, signedOutUri: `${publicUrl}/sign-in` });
      const { issuer, client } = provider;
      const roles = 'viewer:everyone,operator:media-ops,admin:platform';
      return { OIDC_ISSUER: issuer, OIDC_CLIENT_ID: client.id, OIDC_CLIENT_SECRET: client.secret, OIDC_ROLES: roles };
    };
    [scene, chrome] = await Promise.all([newScene({ through: withProvider }), startChromium()]);
    asset = await scene.upload({ name: 'Alpha.pdf', mimeType: 'application/pdf', thumbnail: true });
    await scene.resync();
    await scene.mirror.assetIn(asset, 'mirrored');
  });
  afterAll(async () => {
    await chrome?.close();
    await scene?.close();
    await provider?.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  let page: Page;
  let complaints: string[];
  let hands: ReturnType<typeof handsOn>;
  afterEach(async () => {
    // The browser reports with a delay that the provider has no icon, and that an account has no role.
    const expected = [provider.issuer, '/sign-in/callback'];
    expect(complaints.filter((text) => !expected.some((part) => text.includes(part)))).toEqual([]);
    await page.browserContext().close();
  });

  /** A browser of its own, in which this person signs in at the provider. */
  async function signInAs(name: string): Promise<void> {
    const context = await chrome.createBrowserContext();
    const opened = await openPage(context as never, { width: 1280 });
    ({ page, complaints } = opened);
    hands = handsOn(opened);
    await page.goto(`${scene.ground.publicUrl}/`);
    await Promise.all([page.waitForNavigation(), page.click('a.button')]);
    await page.type('input[name=login]', name);
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    // The provider has no icon.
    complaints.splice(0);
  }
  const go = (hash: string) => page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
  const buttons = () =>
    page.evaluate(
      `[...document.querySelectorAll('main button, main a.button')].map((it) => it.innerText.trim())`,
    ) as Promise<string[]>;
  const pressNamed = (name: string) => page.locator(`button[aria-label="${name}"]`).click();
  const images = () => page.evaluate(`document.querySelectorAll('main img').length`) as Promise<number>;
  const flaws = () => flawsOn(page, [{ width: 1280 }, { width: 360, isDark: true }]);

  test('a viewer sees everything but files, and is not offered what the role forbids', async () => {
    await signInAs('vera');
    await hands.shows('vera@example.com');
    await go(`#/connections/${scene.connectionId}`);
    await hands.shows(
      'Sync, Verify, Pause, Settings, Connect link: only with the role operator (media-ops, platform).',
    );
    await hands.shows('Disconnect: only with the role admin (platform).');
    expect((await buttons()).filter((name) => !/^(Failed|Pending|Processing|Unavailable)/.test(name))).toEqual([]);
    expect(await flaws()).toEqual([]);
    await go(`#/assets/${asset}`);
    await hands.shows('Files, Protect: only with the role operator (media-ops, platform).');
    expect([await buttons(), await images()]).toEqual([[], 0]);
    await go('#/assets?view=grid');
    await hands.shows('Alpha.pdf');
    expect(await images()).toBe(0);
    await go('#/access');
    await hands.shows('Your sessions');
    expect(await page.$eval('a[data-view=audit]', (link) => (link as unknown as { hidden: boolean }).hidden)).toBe(
      true,
    );
  });

  test('an operator sees files and works, but does not erase or disconnect', async () => {
    await signInAs('olga');
    await go(`#/assets/${asset}`);
    await hands.shows('Erase: only with the role admin (platform).');
    expect(await buttons()).toEqual(['Download', 'Open', 'Protect from removal']);
    expect(await images()).toBe(1);
    await hands.press('Protect from removal');
    await hands.shows('Protected from removal.');
    await hands.shows('End protection, Erase: only with the role admin (platform).');
    await go('#/');
    await hands.shows('olga@example.com protected assets from removal');
  });

  test('an operator changes settings of a connection whose limits only an admin may change', async () => {
    const path = `/connections/${scene.connectionId}`;
    await scene.mirror.api('PATCH', path, { holdMissing: '60%,7' });
    await signInAs('olga');
    await go(`#${path}`);
    await hands.press('Settings …');
    await hands.tabTo('textbox', 'Time between syncs');
    await page.keyboard.type('7m');
    await page.keyboard.press('Enter');
    await expect.poll(hands.dialogs).toEqual([]);
    const { settings } = await scene.mirror.api('GET', path);
    expect(settings).toMatchObject({ syncInterval: 420_000, holdMissing: { percent: 60, assets: 7 } });
  });

  test('an admin creates a token, which is shown once, ends a session and reads the audit log', async () => {
    await signInAs('adam');
    await go('#/access');
    await hands.press('Create a token …');
    await hands.tabTo('textbox', 'Name');
    await page.keyboard.type('ci');
    expect(await flaws()).toEqual([]);
    await page.keyboard.press('Enter');
    await expect.poll(hands.dialogs).toEqual(['The new API token']);
    const token = await page.$eval('#copied', (field) => (field as unknown as { value: string }).value);
    expect(token).toMatch(/^am_[0-9a-f]{48}$/);
    const use = () => fetch(`${scene.ground.publicUrl}/api/me`, { headers: { authorization: `Bearer ${token}` } });
    expect(await (await use()).json()).toMatchObject({ name: 'ci', role: 'viewer' });
    await page.keyboard.press('Escape');
    await expect.poll(hands.dialogs).toEqual([]);
    expect(await flaws()).toEqual([]);
    await pressNamed('Revoke ci …');
    await expect.poll(hands.dialogs).toEqual(['Revoke ci?']);
    await hands.press('Revoke');
    await hands.shows('ci was revoked.');
    expect((await use()).status).toBe(401);

    await hands.shows('olga@example.com');
    await pressNamed('End the session of olga@example.com, from 127.0.0.1');
    await hands.shows('Ended a session of olga@example.com.');

    await go('#/audit?q=adam');
    await hands.shows('Ended a session');
    await hands.shows('Revoked an API token');
    expect(await flaws()).toEqual([]);
    const session = await page.createCDPSession();
    await session.send('Browser.setDownloadBehavior', {
      behavior: 'allow',
      browserContextId: page.browserContext().id!,
      downloadPath: directory,
    });
    await hands.press('Export');
    const file = join(directory, 'audit.jsonl');
    await expect.poll(async () => existsSync(file)).toBe(true);
    const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line).action)).toEqual(expect.arrayContaining(['endSession', 'revokeToken']));
    await go('#/audit?outcome=refused');
    await hands.shows('No matching entry.');
  });

  test('an account without a role gets a page that says what to ask for', async () => {
    await signInAs('nora');
    await hands.shows('nora@example.com has no role here.');
    await hands.shows('everyone (viewer), media-ops (operator), platform (admin)');
    expect(await flaws()).toEqual([]);
  });

  test('signing out also ends the session at the provider', async () => {
    await signInAs('vera');
    await hands.shows('vera@example.com');
    await hands.press('Sign out');
    await expect.poll(async () => page.url()).toContain(`${provider.issuer}/session/end`);
    await page.goto(`${scene.ground.publicUrl}/`);
    expect(page.url()).toContain('/sign-in');
    complaints.splice(0);
  });
});
