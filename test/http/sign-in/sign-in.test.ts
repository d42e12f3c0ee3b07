import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startMirror } from '../../support/mirror.ts';
import { newStage, type Stage } from '../../support/stage.ts';

let stage: Stage;
let origin: string;
beforeAll(async () => {
  stage = await newStage({ environment: { TRUST_PROXY: 'loopback,10.0.0.0/8' } });
  origin = stage.ground.publicUrl;
});
afterAll(async () => {
  await stage?.close();
});

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(origin + path, { redirect: 'manual', headers });
const send = (path: string, fields: Record<string, string>, headers: Record<string, string> = {}) =>
  fetch(origin + path, {
    method: 'POST',
    redirect: 'manual',
    headers: { origin, ...headers },
    body: new URLSearchParams(fields),
  });
const token = 'the-token-of-the-operators';
async function signIn(): Promise<string> {
  const answer = await send('/sign-in', { token });
  return answer.headers.getSetCookie()[0]!.split(';')[0]!;
}

describe('signing in', () => {
  test('a page redirects to the sign-in form, and the form redirects back to it', async () => {
    const away = await get('/');
    expect(away.status).toBe(303);
    expect(away.headers.get('location')).toBe('/sign-in?to=%2F');
    const page = await get('/sign-in?to=/queues%3Fa=1');
    expect(page.status).toBe(200);
    expect(page.headers.get('content-security-policy')).toMatch(/default-src 'none'.*form-action 'self'/);
    const html = await page.text();
    expect(html).toContain('name="to" value="/queues?a=1"');
    expect(html).toContain('type="password"');
    expect(html).not.toMatch(/<script|https?:/);
    const answer = await send('/sign-in', { token, to: '/queues?a=1' });
    expect([answer.status, answer.headers.get('location')]).toEqual([303, '/queues?a=1']);
  });

  test.each([
    'https://elsewhere.example/',
    '//elsewhere.example',
    '/\\elsewhere.example',
    'javascript:alert(1)',
    '',
    '/\t/x.example',
    '/.//x.example',
  ])('the sign-in never redirects to another site (%j)', async (to) => {
    const answer = await send('/sign-in', { token, to });
    const { origin: led } = new URL(answer.headers.get('location')!, origin);
    expect([answer.status, led]).toEqual([303, origin]);
  });

  test('the session cookie is hidden from scripts and other sites, and does not contain the token', async () => {
    const answer = await send('/sign-in', { token });
    const [cookie] = answer.headers.getSetCookie();
    expect(cookie).toMatch(/^asset_mirror_session=am_[0-9a-f]{48}; Max-Age=43200; Path=\/; HttpOnly; SameSite=Lax$/);
    expect(cookie).not.toContain(token);
  });

  test('a session opens the API and the dashboard', async () => {
    const cookie = await signIn();
    expect((await get('/api/status', { cookie })).status).toBe(200);
    expect(await (await get('/', { cookie })).text()).toContain('Sign out');
    expect((await get('/sign-in?to=/x', { cookie })).headers.get('location')).toBe('/x');
    expect((await get('/sign-in?to=/%23/assets/a', { cookie })).headers.get('location')).toBe('/#/assets/a');
    // A proxy with a password of its own.
    expect((await get('/api/status', { cookie, authorization: 'Basic YTpi' })).status).toBe(200);
    const wrong = { cookie, authorization: 'Bearer x', 'x-forwarded-for': '192.0.2.7' };
    expect((await get('/api/status', wrong)).status).toBe(401);
  });

  test('signing out ends the session, also for a copy of its cookie', async () => {
    const cookie = await signIn();
    const other = await signIn();
    expect((await send('/sign-out', {}, { cookie, origin: 'https://elsewhere.example' })).status).toBe(303);
    expect((await get('/api/status', { cookie })).status).toBe(200);
    const answer = await send('/sign-out', {}, { cookie });
    expect(answer.headers.getSetCookie()[0]).toMatch(/^asset_mirror_session=; .*Expires=Thu, 01 Jan 1970/);
    expect((await get('/api/status', { cookie })).status).toBe(401);
    expect((await get('/api/status', { cookie: other })).status).toBe(200);
  });

  test('a cookie that was made up or altered opens nothing, and a session is no bearer token', async () => {
    const cookie = await signIn();
    for (const wrong of ['asset_mirror_session=x', `asset_mirror_session=am_${'0'.repeat(48)}`, cookie.slice(0, -1)]) {
      expect((await get('/api/status', { cookie: wrong })).status).toBe(401);
    }
    const [, secret] = cookie.split('=');
    expect(
      (await get('/api/status', { authorization: `Bearer ${secret}`, 'x-forwarded-for': '203.0.113.99' })).status,
    ).toBe(401);
    expect(await stage.query('SELECT 1 FROM sessions WHERE hash LIKE $1', [`%${secret}%`])).toEqual([]);
  });

  test('signing in and out are in the audit log', async () => {
    await send('/sign-out', {}, { cookie: await signIn() });
    const { entries } = await stage.mirror.service.operations.auditLog({ limit: 2 });
    const by = { subject: 'ADMIN_TOKEN', name: 'ADMIN_TOKEN', role: 'admin', method: 'admin_token' };
    expect(entries).toMatchObject([
      { action: 'signOut', by, outcome: 'done', address: '127.0.0.1' },
      { action: 'signIn', by, outcome: 'done' },
    ]);
  });
});

describe('requests from other sites', () => {
  test.each<[string, Record<string, string>, number]>([
    ['another origin', { origin: 'https://elsewhere.example' }, 403],
    ['no origin at all', {}, 403],
    ['an opaque origin', { origin: 'null' }, 403],
    ['another site', { 'sec-fetch-site': 'cross-site' }, 403],
    ['a neighbour under the same domain', { 'sec-fetch-site': 'same-site' }, 403],
    ['a page of ours', { 'sec-fetch-site': 'same-origin' }, 201],
  ])('the session cookie allows changes only from pages of this origin: %s', async (_, headers, status) => {
    const cookie = await signIn();
    const answer = await fetch(`${origin}/api/connect-links`, { method: 'POST', headers: { cookie, ...headers } });
    expect(answer.status).toBe(status);
    if (status === 403) expect(await answer.json()).toMatchObject({ code: 'foreign_origin' });
  });

  test('a page of another site cannot sign anybody in', async () => {
    const answer = await send('/sign-in', { token }, { origin: 'https://elsewhere.example' });
    expect([answer.status, answer.headers.getSetCookie()]).toEqual([403, []]);
  });
});

describe('wrong tokens', () => {
  test('sign-ins are slowed down after ten wrong tokens, and the right token still works', async () => {
    for (let i = 0; i < 10; i++) {
      const answer = await send('/sign-in', { token: `guess ${i}` });
      expect(answer.status).toBe(401);
      expect(await answer.text()).toContain('role="alert"');
    }
    const late = await send('/sign-in', { token: 'guess 10' });
    expect(late.status).toBe(429);
    expect(Number(late.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(late.headers.getSetCookie()).toEqual([]);
    // Form and API count together.
    const bearer = (given: string) => get('/api/status', { authorization: `Bearer ${given}` });
    expect((await bearer('guess 11')).status).toBe(429);
    const cookie = await signIn();
    expect((await get('/api/status', { cookie })).status).toBe(200);
    expect((await bearer(token)).status).toBe(200);
    expect(JSON.stringify(stage.mirror.lines)).not.toContain('guess');
  });

  test.each(['/api/status', '/queues/'])('wrong tokens in a header for %s are slowed down by address', async (path) => {
    const from = `203.0.113.${path.length}`;
    const ask = (given: string, address: string) =>
      get(path, { authorization: `Bearer ${given}`, accept: 'application/json', 'x-forwarded-for': address });
    for (let i = 0; i < 10; i++) expect((await ask(`guess ${i}`, from)).status).toBe(401);
    const late = await ask('guess', from);
    expect(late.status).toBe(429);
    expect(Number(late.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await late.json()).toMatchObject({ code: 'too_many_wrong_tokens' });
    expect((await ask(token, from)).status).toBe(200);
    expect((await ask('guess', '203.0.113.200')).status).toBe(401);
  });

  test("wrong tokens through trusted proxies count for the client's address only", async () => {
    const enter = (given: string, from: string) => send('/sign-in', { token: given }, { 'x-forwarded-for': from });
    for (let i = 0; i < 10; i++) expect((await enter(`guess ${i}`, '203.0.113.9')).status).toBe(401);
    // A client may have invented the addresses before its own.
    for (const from of ['203.0.113.9', '203.0.113.10, 203.0.113.9, 10.1.2.4']) {
      expect((await enter('guess', from)).status).toBe(429);
    }
    expect((await enter('guess', '203.0.113.10')).status).toBe(401);
  });

  test('wrong tokens from IPv6 addresses are counted by their /64', async () => {
    const enter = async (from: string) =>
      (await send('/sign-in', { token: 'guess' }, { 'x-forwarded-for': from })).status;
    for (let i = 0; i < 10; i++) expect(await enter(`2001:db8:1:2:${i}::1`)).toBe(401);
    expect(await enter('2001:db8:1:2:ffff::1')).toBe(429);
    expect(await enter('2001:db8:1:3::1')).toBe(401);
    // IPv4 written as IPv6 stays one address.
    for (let i = 0; i < 10; i++) expect(await enter('::ffff:203.0.113.50')).toBe(401);
    expect(await enter('203.0.113.50')).toBe(429);
    expect(await enter('::ffff:203.0.113.51')).toBe(401);
  });
});

test('on https the session cookie is secure and has the path of PUBLIC_URL; a new token ends all sessions', async () => {
  const cookie = await signIn().catch(() => '');
  const { environment } = stage.ground;
  await stage.mirror.stop();
  const moved = { ...stage.ground, environment: { ...environment, PUBLIC_URL: 'https://example.com/mirror' } };
  const again = await startMirror(moved, stage.library, 'web');
  try {
    const answer = await send('/sign-in', { token, to: '/' }, { origin: 'https://example.com' });
    expect(answer.headers.getSetCookie()[0]).toMatch(/; Path=\/mirror; HttpOnly; Secure; SameSite=Lax$/);
    expect(answer.headers.get('location')).toBe('/mirror/');
    const session = answer.headers.getSetCookie()[0]!.split(';')[0]!;
    expect((await get('/api/status', { cookie: session })).status).toBe(200);
    await again.stop();
    const other = { ...moved, environment: { ...moved.environment, ADMIN_TOKEN: 'another token of the operators' } };
    const renewed = await startMirror(other, stage.library, 'web');
    expect((await get('/api/status', { cookie: session })).status).toBe(401);
    // No proxy is trusted here.
    const open = { ...other.environment, TRUST_PROXY: '' };
    await renewed.stop();
    const alone = await startMirror({ ...other, environment: open }, stage.library, 'web');
    const enter = async (given: string, from: string) =>
      (await send('/sign-in', { token: given }, { origin: 'https://example.com', 'x-forwarded-for': from })).status;
    for (let i = 0; i < 10; i++) expect(await enter('a guess', `203.0.113.${i}`)).toBe(401);
    expect(await enter('a guess', '203.0.113.20')).toBe(429);
    await alone.stop();
  } finally {
    expect(cookie).toBeDefined();
    stage.mirror.stop = async () => {};
  }
});
