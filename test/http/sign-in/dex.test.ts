// @module-tag slow
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser } from 'puppeteer-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { chromium, startChromium } from '../../support/chromium.ts';
import { openPage } from '../../support/dashboard.ts';
import { installed } from '../../support/installed.ts';
import { freePort } from '../../support/ports.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { until } from '../../support/until.ts';

const hasDex = await installed('dex');

/** Of `password`, from Dex's own example. */
const hash = '$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W';

describe.skipIf(!hasDex || !chromium)('sign-in with Dex', () => {
  let directory: string;
  let issuer: string;
  let stop: () => Promise<void>;
  let stage: Stage;
  let chrome: Browser;
  beforeAll(async () => {
    const [port, dexPort] = [await freePort(), await freePort()];
    directory = await mkdtemp(join(tmpdir(), 'asset-mirror-dex-'));
    issuer = `http://127.0.0.1:${dexPort}`;
    const config = {
      issuer,
      storage: { type: 'memory' },
      web: { http: `127.0.0.1:${dexPort}` },
      oauth2: { skipApprovalScreen: true },
      enablePasswordDB: true,
      staticClients: [
        {
          id: 'asset-mirror',
          name: 'asset-mirror',
          secret: 'the-secret-of-the-mirror',
          redirectURIs: [`http://127.0.0.1:${port}/sign-in/callback`, '/device/callback'],
        },
      ],
      staticPasswords: ['ada', 'nora'].map((name) => ({
        email: `${name}@example.com`,
        hash,
        username: name,
        userID: `id-of-${name}`,
      })),
    };
    // JSON is YAML.
    await writeFile(join(directory, 'dex.yaml'), JSON.stringify(config));
    const dex = spawn('dex', ['serve', join(directory, 'dex.yaml')], { stdio: 'ignore' });
    const ended = new Promise((resolve) => dex.once('exit', resolve));
    stop = async () => {
      dex.kill('SIGTERM');
      await ended;
    };
    const environment = {
      OIDC_ISSUER: issuer,
      OIDC_CLIENT_ID: 'asset-mirror',
      OIDC_CLIENT_SECRET: 'the-secret-of-the-mirror',
      OIDC_ROLE_CLAIM: 'email',
      OIDC_ROLES: 'operator:ada@example.com',
    };
    [stage, chrome] = await Promise.all([newStage({ port, environment }), startChromium()]);
    const answers = () =>
      fetch(`${issuer}/.well-known/openid-configuration`).then(
        ({ ok }) => ok,
        () => false,
      );
    await until('Dex to start', answers);
  });
  afterAll(async () => {
    await chrome?.close();
    await stage?.close();
    await stop?.();
    await rm(directory, { recursive: true, force: true });
  });

  async function signInAs(name: string) {
    const context = await chrome.createBrowserContext();
    const { page } = await openPage(context, { width: 1280 });
    await page.goto(`${stage.ground.publicUrl}/`);
    await Promise.all([page.waitForNavigation(), page.click('a.button')]);
    await page.type('#login', `${name}@example.com`);
    await page.type('#password', 'password');
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    return page;
  }

  test('a browser does the whole sign-in, and the e-mail address gives the role', async () => {
    const page = await signInAs('ada');
    await page.waitForSelector('#me');
    const me = await page.evaluate(`fetch('/api/me').then((answer) => answer.json())`);
    expect(me).toMatchObject({ name: 'ada@example.com', role: 'operator', method: 'oidc' });
  });

  test('a terminal signs in with a code', async () => {
    const send = async (path: string, body: object = {}) => {
      const answer = await fetch(`${stage.ground.publicUrl}/sign-in${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      return { status: answer.status, body: (await answer.json()) as Record<string, string> };
    };
    const { body: begun } = await send('/device');
    const context = await chrome.createBrowserContext();
    const { page } = await openPage(context, { width: 1280 });
    await page.goto(begun.url!);
    await page.type('input[name=user_code]', begun.userCode!);
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    await page.type('#login', 'ada@example.com');
    await page.type('#password', 'password');
    await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    const poll = () => send('/device/token', { device: begun.device });
    const done = await until('the sign-in', async () => {
      const answer = await poll();
      return answer.status === 202 ? undefined : answer;
    });
    expect(done).toMatchObject({ status: 200, body: { name: 'ada@example.com', role: 'operator' } });
    const headers = { authorization: `Bearer ${done.body.token}` };
    expect((await fetch(`${stage.ground.publicUrl}/api/status`, { headers })).status).toBe(200);
  });

  test('an account without a role is refused', async () => {
    const page = await signInAs('nora');
    expect(await page.evaluate('document.body.innerText')).toContain('nora@example.com has no role here.');
  });
});
