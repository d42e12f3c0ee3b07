// @module-tag slow
import { execFile, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newBrowser } from '../support/browser.ts';
import { type OpenIdProvider, startOpenIdProvider } from '../support/openid-provider.ts';
import { freePort } from '../support/ports.ts';
import { spawned } from '../support/spawned.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

let provider: OpenIdProvider;
let stage: Stage;
let home: string;
beforeAll(async () => {
  const port = await freePort();
  const publicUrl = `http://127.0.0.1:${port}`;
  home = await mkdtemp(join(tmpdir(), 'asset-mirror-home-'));
  provider = await startOpenIdProvider({
    accounts: { olga: { groups: ['media-ops'], email: 'olga@example.com' }, nora: {} },
    redirectUri: `${publicUrl}/sign-in/callback`,
    signedOutUri: `${publicUrl}/sign-in`,
    deviceFlow: true,
  });
  stage = await newStage({
    port,
    environment: {
      OIDC_ISSUER: provider.issuer,
      OIDC_CLIENT_ID: provider.client.id,
      OIDC_CLIENT_SECRET: provider.client.secret,
      OIDC_ROLES: 'operator:media-ops,admin:platform',
    },
  });
});
afterAll(async () => {
  await stage?.close();
  await provider?.stop();
  await rm(home, { recursive: true, force: true });
});

const environment = () => ({
  ...spawned,
  HOME: home,
  DATA_DIR: home,
  ASSET_MIRROR_URL: stage.ground.publicUrl,
});
const admin = { ADMIN_TOKEN: 'the-token-of-the-operators' };
const run = (args: string[], more: Record<string, string> = {}) =>
  new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
    execFile(
      process.execPath,
      ['src/main.ts', ...args],
      { env: { ...environment(), ...more } },
      (error, stdout, stderr) => resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
  });
const credentials = () => join(home, '.config/asset-mirror/credentials.json');

/** Sends the form of a page of the provider, with these fields. */
async function submit(
  browser: ReturnType<typeof newBrowser>,
  page: { url: string; text: string },
  fields: Record<string, string> = {},
) {
  const [, action = page.url] = /<form[^>]* action="([^"]*)"/.exec(page.text) ?? [];
  const hidden = [...page.text.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)"/g)].map(
    ([, name, value]) => [name, value],
  );
  const answer = await browser.post(new URL(action, page.url).href, { ...Object.fromEntries(hidden), ...fields });
  const location = answer.headers.get('location');
  if (location === null) return { url: page.url, text: await answer.text() };
  return browser.visit(new URL(location, page.url).href);
}

/** `asset-mirror login`, while the person signs in at the provider. */
async function login(name: string) {
  const child = spawn(process.execPath, ['src/main.ts', 'login'], { env: environment() });
  let [output, errors] = ['', ''];
  child.stdout.on('data', (chunk) => {
    output += chunk;
  });
  child.stderr.on('data', (chunk) => {
    errors += chunk;
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  await until('the code', () => /the code/.test(output));
  const [, url, code = ''] = /Open (\S+) in a browser, and enter the code (\S+)\./.exec(output)!;
  const browser = newBrowser();
  let page = await submit(browser, await browser.visit(url!), { user_code: code });
  expect(page.text).toContain(code);
  page = await submit(browser, page);
  page = await submit(browser, page, { login: name });
  return { code: await ended, output, errors: () => errors, page };
}

describe('login', () => {
  test('a person signs in with a code, and the other verbs use the session until logout', async () => {
    const before = await run(['whoami']);
    expect(before).toMatchObject({ code: 2, stderr: expect.stringContaining('Run `asset-mirror login`') });
    expect((await login('olga')).code).toBe(0);
    expect(await run(['whoami'])).toMatchObject({
      code: 0,
      stdout: 'olga@example.com, role operator, signed in at the provider.\n',
    });
    expect((await stat(credentials())).mode & 0o777).toBe(0o600);
    const refused = await run(['keys', 'rotate']);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toBe(
      'asset-mirror: This needs the role admin; olga@example.com has the role operator. Ask someone with that role (platform).\n',
    );
    const { stdout } = await run(['sessions', 'list', '--json']);
    expect(JSON.parse(stdout).sessions).toMatchObject([{ name: 'olga@example.com', method: 'device', isThis: true }]);
    const [token] = Object.values(JSON.parse(await readFile(credentials(), 'utf8'))) as { token: string }[];
    expect(await run(['logout'])).toMatchObject({ code: 0, stdout: 'Signed out olga@example.com.\n' });
    expect(JSON.parse(await readFile(credentials(), 'utf8'))).toEqual({});
    expect((await run(['whoami'], { ASSET_MIRROR_TOKEN: token!.token })).code).toBe(2);
  });

  test('login refuses a person without a role', async () => {
    const { code, errors } = await login('nora');
    expect(code).toBe(1);
    expect(errors()).toContain('nora has no role here. Ask an administrator of the OpenID provider for one of these');
  });
});

test('tokens are created, used, listed and revoked', async () => {
  const added = await run(['tokens', 'add', 'ci', '--role', 'viewer', '--days', '3'], admin);
  expect(added.code).toBe(0);
  expect(added.stderr).toContain('and is shown only now:');
  const token = added.stdout.trim();
  expect(token).toMatch(/^am_[0-9a-f]{48}$/);
  const mine = { ASSET_MIRROR_TOKEN: token };
  expect((await run(['status'], mine)).code).toBe(0);
  const refused = await run(['tokens', 'list'], mine);
  expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('This needs the role admin; ci has')]);
  expect((await run(['tokens', 'list'], admin)).stdout).toMatch(
    /^NAME +ROLE .*\nci +viewer +am_\w{6} +.* +in 3d +ADMIN_TOKEN\n$/,
  );
  expect(await run(['tokens', 'revoke', 'ci'], admin)).toMatchObject({
    code: 0,
    stdout: 'The token ci no longer works.\n',
  });
  expect((await run(['status'], mine)).code).toBe(2);
});

test('the audit log is listed, searched and exported', async () => {
  const list = await run(['audit', '--action', 'createToken'], admin);
  expect(list.stdout).toMatch(
    /^TIME +WHO .*\n\S+Z +ADMIN_TOKEN +admin +127\.0\.0\.1 +createToken +\S+ +done +\{"name":"ci"/,
  );
  const all = await run(['audit', '--all', '--json'], admin);
  const entries = all.stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(entries.map(({ action }) => action)).toEqual(expect.arrayContaining(['signIn', 'rotateKeys', 'revokeToken']));
  const refused = await run(['audit', '--refused', '--search', 'olga'], admin);
  expect(refused.stdout).toMatch(/rotateKeys +refused +This needs the role admin/);
  expect(await run(['audit', '--search', 'nobody'], admin)).toMatchObject({ code: 0, stdout: 'No matching entry.\n' });
});
