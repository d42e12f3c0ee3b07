import { createHash, randomUUID } from 'node:crypto';
import { createServer, request } from 'node:http';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { signConnectLink } from '../../src/oauth/authorize.ts';
import { newBrowser } from '../support/browser.ts';
import { startTestLibrary } from '../support/library.ts';
import { newGround, startMirror } from '../support/mirror.ts';
import { freePort } from '../support/ports.ts';
import { connectAs, newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterEach(async () => {
  await stage.admin.clearFaults();
});
afterAll(async () => {
  await stage?.close();
});

const linkFor = async (connectionId?: string): Promise<string> =>
  (await stage.mirror.api('POST', '/connect-links', { connectionId })).url;
const connections = async (): Promise<{ id: string; user: { id: string } }[]> =>
  (await stage.mirror.api('GET', '/connections')).connections;

/** A user of the library who has not connected. */
async function somebody(): Promise<string> {
  const userId = `user-${randomUUID().slice(0, 8)}`;
  await stage.admin.addUser({ id: userId, name: `Ms ${userId}`, email: `${userId}@example.com` });
  await stage.admin.addCompany({ id: `company of ${userId}`, name: `Firm of ${userId}`, userIds: [userId] });
  return userId;
}

/** A browser after the consent, and the address of the callback. */
async function consented(userId: string, link?: string) {
  const browser = newBrowser();
  const consent = (await browser.get(link ?? (await linkFor()))).headers.get('location');
  const answer = await browser.get(`${consent}&login_hint=${userId}`);
  return { browser, back: answer.headers.get('location')! };
}
const text = async (response: Response) => ({ status: response.status, text: await response.text() });

/** The address behind the button of a page. */
function button(page: string): string {
  const [, href] = /<a class="button" href="([^"]+)">Try again<\/a>/.exec(page) ?? [];
  return href!.replaceAll('&amp;', '&');
}

describe('a connect link', () => {
  test('a connect link redirects to the consent page with PKCE, a state and the exact redirect URI', async () => {
    const browser = newBrowser();
    const [first, second] = [await browser.get(await linkFor()), await newBrowser().get(await linkFor())];
    expect(first.status).toBe(302);
    const at = new URL(first.headers.get('location')!);
    expect(at.origin + at.pathname).toBe(`${stage.library.appUrl}/oauth/authorize`);
    const query = Object.fromEntries(at.searchParams);
    expect(query).toEqual({
      response_type: 'code',
      client_id: stage.library.clientId,
      redirect_uri: `${stage.ground.publicUrl}/oauth/callback`,
      state: expect.stringMatching(/^[\w-]{32,}$/),
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge_method: 'S256',
    });
    const other = new URL(second.headers.get('location')!).searchParams;
    for (const name of ['state', 'code_challenge']) expect(other.get(name)).not.toBe(query[name]);

    // The verifier is not readable anywhere.
    const [cookie] = first.headers.getSetCookie();
    expect(cookie).toMatch(
      /^asset_mirror_connect=v1\.[\w.-]+; Max-Age=3600; Path=\/oauth\/callback; HttpOnly; SameSite=Lax$/,
    );
    expect(cookie).not.toContain(query.state);
    expect(Object.fromEntries(first.headers)).toMatchObject({
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
    });
    const challenge = (verifier: string) => createHash('sha256').update(verifier).digest('base64url');
    for (const part of cookie!.split(/[=.;]/)) expect(challenge(part)).not.toBe(query.code_challenge);
  });

  test('a connect link works more than once, for different users', async () => {
    const link = await linkFor();
    for (const userId of [await somebody(), await somebody()]) {
      const { browser, back } = await consented(userId, link);
      expect(await text(await browser.get(back))).toMatchObject({
        status: 200,
        text: expect.stringContaining('You are connected'),
      });
    }
  });

  test.each([
    ['no link', '/connect', 400],
    ['two links', '/connect?link=a&link=b', 400],
    ['an unsigned link', '/connect?link=abc.def', 400],
    ['a link with NUL', '/connect?link=%00.%00', 400],
  ])('/connect with %s is refused', async (_, path, status) => {
    const page = await newBrowser().get(stage.ground.publicUrl + path);
    expect(page.headers.getSetCookie()).toEqual([]);
    expect(await text(page)).toMatchObject({ status, text: expect.stringContaining('This link does not work') });
  });

  test('a connect link that was altered is refused', async () => {
    const link = new URL(await linkFor());
    const given = link.searchParams.get('link')!;
    const [body, signature] = given.split('.') as [string, string];
    const forged = Buffer.from(JSON.stringify({ c: 'another', e: Date.now() + 9e9 })).toString('base64url');
    for (const changed of [`${forged}.${signature}`, `${body}.${signature.slice(0, -4)}AAAA`, body, `${given}.x`]) {
      link.searchParams.set('link', changed);
      expect((await newBrowser().get(link.href)).status).toBe(400);
    }
  });

  test('an expired connect link shows a page that says so', async () => {
    const { sealer } = stage.mirror.service.context;
    const link = signConnectLink(sealer, { madeAt: new Date(0), expiresAt: new Date(Date.now() - 1) });
    const page = await text(await newBrowser().get(`${stage.ground.publicUrl}/connect?link=${link}`));
    expect(page).toMatchObject({ status: 410, text: expect.stringContaining('This link has expired') });
  });
});

describe('the callback', () => {
  test('the callback makes a connection with its companies and a first sync', async () => {
    const userId = await somebody();
    const { browser, back } = await consented(userId);
    const page = await text(await browser.get(back));
    expect(page).toMatchObject({ status: 200, text: expect.stringContaining(`Firm of ${userId}`) });
    const connection = (await connections()).find(({ user }) => user.id === userId)!;
    expect(connection).toMatchObject({
      status: 'active',
      user: { name: `Ms ${userId}`, email: `${userId}@example.com` },
      companies: [{ id: `company of ${userId}`, highWaterMark: null }],
      lastSyncAt: null,
      lastError: null,
    });
    expect(await stage.run(connection.id)).toEqual({ outcome: 'done', done: 1 });
  });

  test('the callback works only in the browser that began', async () => {
    const userId = await somebody();
    const { browser, back } = await consented(userId);
    const stranger = await text(await newBrowser().get(back));
    expect(stranger).toMatchObject({ status: 400, text: expect.stringContaining('did not start here') });
    // Neither can a browser that has started its own attempt.
    const other = await consented(await somebody());
    expect((await other.browser.get(back)).status).toBe(400);
    expect((await connections()).some(({ user }) => user.id === userId)).toBe(false);
    expect((await browser.get(back)).status).toBe(200);
  });

  test('a state is accepted once, and using it again does not end the connection', async () => {
    const userId = await somebody();
    const { browser, back } = await consented(userId);
    const kept = new Map([...browser.cookies].map(([host, jar]) => [host, new Map(jar)]));
    const first = await browser.get(back);
    expect(first.status).toBe(200);
    expect(first.headers.getSetCookie()[0]).toMatch(/^asset_mirror_connect=; .*Expires=Thu, 01 Jan 1970/);
    // A reload shows the same result and changes nothing.
    expect(await text(await browser.get(back))).toMatchObject({
      status: 400,
      text: expect.stringContaining('you are connected'),
    });

    const replay = newBrowser();
    for (const [host, jar] of kept) replay.cookies.set(host, jar);
    await stage.admin.clearRequests();
    expect(await text(await replay.get(back))).toMatchObject({
      status: 400,
      text: expect.stringContaining('is finished already'),
    });
    expect(await stage.admin.requests({ endpoint: 'token' })).toEqual([]);
    // A code that is used twice ends its connection at the library.
    const live = (await stage.admin.connections()).find((user) => user.userId === userId)!;
    expect(live.refreshTokens).toBe(1);
  });

  test('several callbacks at the same time make one connection', async () => {
    const userId = await somebody();
    const { browser, back } = await consented(userId);
    const all = await Promise.all(Array.from({ length: 5 }, () => browser.get(back)));
    expect(all.map((page) => page.status).sort()).toEqual([200, 400, 400, 400, 400]);
    expect((await stage.admin.connections()).find((user) => user.userId === userId)!.refreshTokens).toBe(1);
  });

  test('a user who cancels gets a page that says so, with a link to try again', async () => {
    const userId = await somebody();
    const browser = newBrowser();
    const consent = new URL((await browser.get(await linkFor())).headers.get('location')!);
    const state = consent.searchParams.get('state')!;
    const page = await text(
      await browser.get(`${stage.ground.publicUrl}/oauth/callback?error=access_denied&state=${state}`),
    );
    expect(page).toMatchObject({ status: 200, text: expect.stringContaining('Access was not allowed') });
    expect((await connections()).some(({ user }) => user.id === userId)).toBe(false);
    const again = await consented(userId, button(page.text));
    expect((await again.browser.get(again.back)).status).toBe(200);
    expect((await connections()).some(({ user }) => user.id === userId)).toBe(true);
  });

  test('the link to try again after cancelling is the same one, with the same expiry', async () => {
    const link = await linkFor();
    const browser = newBrowser();
    const consent = new URL((await browser.get(link)).headers.get('location')!);
    const back = `${stage.ground.publicUrl}/oauth/callback?error=access_denied&state=${consent.searchParams.get('state')}`;
    expect(button((await text(await browser.get(back))).text)).toBe(link);
  });

  test.each([
    ['another error', 'error=server_error&error_description=%3Cscript%3E'],
    ['neither a code nor an error', ''],
    ['two codes', 'code=a&code=b'],
  ])('a callback with %s shows a page with a link to try again, and none of its query', async (_, query) => {
    const browser = newBrowser();
    const state = new URL((await browser.get(await linkFor())).headers.get('location')!).searchParams.get('state');
    const page = await text(await browser.get(`${stage.ground.publicUrl}/oauth/callback?${query}&state=${state}`));
    expect(page).toMatchObject({
      status: 400,
      text: expect.stringContaining('The library reported a problem'),
    });
    expect(page.text).not.toMatch(/server_error|script/);
    expect(button(page.text)).toContain('/connect?link=');
  });

  test.each(['', 'state=', 'state=a&state=b', 'code=svcc_x&state=%00'])(
    'a callback with an invalid state (%s) is refused',
    async (query) => {
      const browser = newBrowser();
      await browser.get(await linkFor());
      expect((await browser.get(`${stage.ground.publicUrl}/oauth/callback?${query}`)).status).toBe(400);
    },
  );

  test('a callback with a wrong code makes no connection, and can be tried again', async () => {
    const { browser, back } = await consented(await somebody());
    const before = (await connections()).length;
    const page = await text(await browser.get(back.replace(/code=[^&]+/, 'code=svcc_wrong')));
    expect(page).toMatchObject({ status: 400, text: expect.stringContaining('Connecting did not work') });
    expect(button(page.text)).toContain('/connect?link=');
    expect((await connections()).length).toBe(before);
    expect(JSON.stringify(stage.mirror.lines)).not.toContain('svcc_wrong');
  });

  test('the callback makes a connection after short errors and a short wait of /me', { tags: 'slow' }, async () => {
    const userId = await somebody();
    const { browser, back } = await consented(userId);
    await stage.admin.setFaults(
      { endpoint: 'me', status: 500, times: 2 },
      { endpoint: 'me', retryAfter: 1, skip: 2, times: 1 },
    );
    const page = await text(await browser.get(back));
    expect(page).toMatchObject({ status: 200, text: expect.stringContaining('You are connected') });
    expect((await connections()).some(({ user }) => user.id === userId)).toBe(true);
  });

  test('if /me asks for a long wait, the page says so, and the connection is made in the background', async () => {
    const userId = await somebody();
    const { browser, back } = await consented(userId);
    await stage.admin.setFaults({ endpoint: 'me', retryAfter: 600, times: 1 });
    const page = await text(await browser.get(back));
    expect(page).toMatchObject({ status: 202, text: expect.stringContaining('you will be connected soon') });
    expect((await connections()).some(({ user }) => user.id === userId)).toBe(false);
    const [consent] = await stage.query<{ tokens: string; next_at: Date }>('SELECT * FROM consents');
    expect(consent!.tokens).toMatch(/^v1\./);
    expect(consent!.next_at.getTime()).toBeGreaterThan(Date.now() + 300_000);
    await stage.ground.endWaits();
    await until('the connection', async () => (await connections()).some(({ user }) => user.id === userId));
    const { id } = (await connections()).find(({ user }) => user.id === userId)!;
    await until('its first sync', async () => (await stage.run(id)).done === 1);
    expect(await stage.rows('consents')).toBe(0);
  });

  test('an access token that expires before /me answers is refreshed in the background', { tags: 'slow' }, async () => {
    const userId = await somebody();
    const { browser, back } = await consented(userId);
    await stage.admin.setFaults({ endpoint: 'me', retryAfter: 600, times: 1 });
    expect((await browser.get(back)).status).toBe(202);
    await stage.admin.expireTokens(userId);
    await stage.query(`UPDATE consents SET access_expires_at = now(), next_at = now()`);
    await until('the connection', async () => (await connections()).some(({ user }) => user.id === userId));
    const { id } = (await connections()).find(({ user }) => user.id === userId)!;
    await until('its first sync', async () => (await stage.run(id)).done === 1);
    expect(await stage.rows('consents')).toBe(0);
  });

  test('an invalid answer of /me makes no connection, and the user can try again', async () => {
    const userId = await somebody();
    const { browser, back } = await consented(userId);
    await stage.admin.addFault({ endpoint: 'me', body: { user: {}, companies: [] } });
    const page = await text(await browser.get(back));
    expect(page).toMatchObject({ status: 502, text: expect.stringContaining('Connecting did not work') });
    await stage.admin.clearFaults();
    expect((await connections()).some(({ user }) => user.id === userId)).toBe(false);
    // The mirror does not know whose grant it is: to revoke it could end a live connection.
    expect((await stage.admin.connections()).find((user) => user.userId === userId)!.refreshTokens).toBe(1);
    expect(await stage.rows('consents')).toBe(0);
    const again = await consented(userId, button(page.text));
    expect((await again.browser.get(again.back)).status).toBe(200);
  });

  test.each([302, 401, 404, 408])(
    'a consent is finished in the background after /me answered %i once',
    async (status) => {
      const userId = await somebody();
      const { browser, back } = await consented(userId);
      const first = { endpoint: 'me', retryAfter: 600, times: 1 } as const;
      await stage.admin.setFaults(first, { endpoint: 'me', status, skip: 1, times: 1 });
      expect((await browser.get(back)).status).toBe(202);
      await until('the connection', async () => {
        await stage.ground.endWaits();
        return (await connections()).some(({ user }) => user.id === userId);
      });
      await until('the consent to end', async () => (await stage.rows('consents')) === 0);
    },
  );

  test('a sign-in is finished if the companies can be saved only at the second attempt', async () => {
    const userId = await somebody();
    const { browser, back } = await consented(userId);
    await stage.query('CREATE SEQUENCE refusals');
    await stage.query(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      PERFORM nextval('refusals'); RAISE EXCEPTION 'no space'; END $$`);
    await stage.query('CREATE TRIGGER refuse BEFORE INSERT ON access FOR EACH STATEMENT EXECUTE FUNCTION refuse()');
    const answer = browser.get(back);
    const refused = async () =>
      (await stage.query<{ is_called: boolean }>('SELECT is_called FROM refusals'))[0]!.is_called;
    await until('the first attempt to fail', refused);
    await stage.query('DROP TRIGGER refuse ON access');
    expect(await text(await answer)).toMatchObject({ status: 200, text: expect.stringContaining('You are connected') });
    const { id } = (await connections()).find(({ user }) => user.id === userId)!;
    await until('its first sync', async () => (await stage.run(id)).done === 1);
  });

  test('a second consent replaces the first one, although the first is finished meanwhile', async () => {
    const userId = await somebody();
    const first = await consented(userId);
    await stage.admin.setFaults({ endpoint: 'me', retryAfter: 600, times: 1 });
    expect((await first.browser.get(first.back)).status).toBe(202);
    const second = await consented(userId);
    await stage.admin.setFaults({ endpoint: 'me', retryAfter: 600, times: 1 });
    expect((await second.browser.get(second.back)).status).toBe(202);
    const earlier = `id = (SELECT id FROM consents ORDER BY created_at LIMIT 1)`;
    await stage.query(`UPDATE consents SET next_at = now() WHERE ${earlier}`);
    await until('the first consent to be finished', async () => (await stage.rows('consents')) === 1);
    const { id } = (await connections()).find(({ user }) => user.id === userId)!;
    const { tokens } = (await stage.store.connections.get(id))!;
    await stage.ground.endWaits();
    await until('the second consent to be finished', async () => (await stage.rows('consents')) === 0);
    expect((await stage.store.connections.get(id))!.tokens).not.toBe(tokens);
  });

  test('a second consent that finishes before the first one is kept', async () => {
    const userId = await somebody();
    const first = await consented(userId);
    await stage.admin.setFaults({ endpoint: 'me', retryAfter: 600, times: 1 });
    expect((await first.browser.get(first.back)).status).toBe(202);
    const second = await consented(userId);
    expect((await second.browser.get(second.back)).status).toBe(200);
    const { id } = (await connections()).find(({ user }) => user.id === userId)!;
    const { tokens } = (await stage.store.connections.get(id))!;
    await stage.ground.endWaits();
    await until('the first consent to end', async () => (await stage.rows('consents')) === 0);
    expect(await stage.store.connections.get(id)).toMatchObject({ status: 'active', tokens });
    expect(await stage.run(id)).toEqual({ outcome: 'done', done: 1 });
  });

  test('a consent is kept if the old connection of its user ends before it is finished', { tags: 'slow' }, async () => {
    const { connectionId, userId } = await stage.company();
    await stage.admin.endConnections(userId);
    const { browser, back } = await consented(userId, await linkFor(connectionId));
    await stage.admin.setFaults({ endpoint: 'me', retryAfter: 600, times: 1 });
    expect((await browser.get(back)).status).toBe(202);
    await stage.sync(connectionId);
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'disconnected' });
    await stage.ground.endWaits();
    await until('the consent to end', async () => (await stage.rows('consents')) === 0);
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'active' });
    expect((await stage.sync(connectionId)).status).toBe('done');
  });

  test('a consent that waits is discarded, and its grant revoked, if an operator disconnects the user', async () => {
    const { connectionId, userId } = await stage.company();
    const { browser, back } = await consented(userId, await linkFor(connectionId));
    await stage.admin.setFaults({ endpoint: 'me', retryAfter: 600, times: 1 });
    expect((await browser.get(back)).status).toBe(202);
    await stage.mirror.api('POST', `/connections/${connectionId}/disconnect`);
    await stage.ground.endWaits();
    await until('the consent to end', async () => (await stage.rows('consents')) === 0);
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'disconnected' });
    expect((await stage.admin.connections()).find((user) => user.userId === userId)!.refreshTokens).toBe(0);
  });

  test('a callback while the token endpoint is away answers 502', async () => {
    const { browser, back } = await consented(await somebody());
    await stage.admin.addFault({ endpoint: 'token', status: 503 });
    expect((await browser.get(back)).status).toBe(502);
  });

  test('unusual characters in names are shown escaped, and kept', async () => {
    const userId = await somebody();
    const name = `<script>alert("${userId}")</script> & 'co' \u0000\ud800`;
    await stage.admin.addFault({
      endpoint: 'me',
      body: { user: { id: userId, name, email: null }, companies: [{ id: 'odd', name }] },
    });
    const { browser, back } = await consented(userId);
    const page = await text(await browser.get(back));
    expect(page.status).toBe(200);
    expect(page.text).toContain('&lt;script&gt;alert(&quot;');
    expect(page.text).not.toContain('<script');
    expect((await connections()).find(({ user }) => user.id === userId)).toMatchObject({
      user: { name: `<script>alert("${userId}")</script> & 'co' \ufffd`, email: '' },
    });
  });
});

describe('connecting again', () => {
  test('a reconnect keeps the connection with its marks and records, and makes it active', async () => {
    const { companyId, connectionId, userId } = await stage.company();
    const ids = await stage.upload(companyId);
    await stage.run(connectionId);
    const mark = await stage.highWaterMark(connectionId, companyId);
    await stage.admin.endConnections(userId);
    await stage.sync(connectionId);
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'disconnected' });

    const { browser, back } = await consented(userId, await linkFor(connectionId));
    const page = await text(await browser.get(back));
    expect(page).toMatchObject({ status: 200, text: expect.stringContaining('You are connected again') });
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'active', lastError: null });
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(mark);
    expect(await stage.ids(companyId)).toEqual(ids);
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    // A link without a connection does the same for a known user.
    expect(await connectAs(stage.mirror, userId)).toBe(connectionId);
  });

  test('a reconnect by another user is refused, and revokes the new grant', async () => {
    const owner = await stage.company();
    const stranger = await somebody();
    const { browser, back } = await consented(stranger, await linkFor(owner.connectionId));
    const page = await text(await browser.get(back));
    expect(page).toMatchObject({ status: 409, text: expect.stringContaining('That is another account') });
    expect(page.text).toContain(`${owner.userId}@example.com`);
    expect(page.text).toContain(`${stranger}@example.com`);
    expect((await connections()).some(({ user }) => user.id === stranger)).toBe(false);
    expect((await stage.admin.connections()).find((user) => user.userId === stranger)!.refreshTokens).toBe(0);
    expect(await stage.sync(owner.connectionId)).toMatchObject({ status: 'done' });
    // The offered link is the same one: for the right account.
    const again = await consented(owner.userId, button(page.text));
    expect((await again.browser.get(again.back)).status).toBe(200);
  });

  test('a reconnect by another user who is connected changes neither connection', async () => {
    const [owner, other] = [await stage.company(), await stage.company()];
    const { browser, back } = await consented(other.userId, await linkFor(owner.connectionId));
    expect((await browser.get(back)).status).toBe(409);
    for (const { connectionId } of [owner, other])
      expect(await stage.sync(connectionId)).toMatchObject({ status: 'done' });
  });

  test('a reconnect by another user who is disconnected does not connect that user', async () => {
    const [owner, other] = [await stage.company(), await stage.company()];
    await stage.mirror.service.context.tokens.disconnect(other.connectionId);
    const { browser, back } = await consented(other.userId, await linkFor(owner.connectionId));
    expect((await browser.get(back)).status).toBe(409);
    expect(await stage.store.connections.get(other.connectionId)).toMatchObject({ status: 'disconnected' });
    expect((await stage.admin.connections()).find((user) => user.userId === other.userId)!.refreshTokens).toBe(0);
  });
});

describe('a connect link after an operator disconnected the user', () => {
  const disconnect = (id: string) => stage.mirror.api('POST', `/connections/${id}/disconnect`);

  test('a link from before a disconnect by the operator does not work, and one from afterwards does', async () => {
    const { connectionId, userId } = await stage.company();
    const before = await linkFor(connectionId);
    await disconnect(connectionId);
    const page = await text(await newBrowser().get(before));
    expect(page).toMatchObject({ status: 410, text: expect.stringContaining('This link no longer works') });
    const after = await consented(userId, await linkFor(connectionId));
    expect((await after.browser.get(after.back)).status).toBe(200);
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'active' });
  });

  test('a link from before a disconnect by the operator does not work if the connection had ended already', async () => {
    const { connectionId, userId } = await stage.company();
    await stage.admin.endConnections(userId);
    await stage.sync(connectionId);
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'disconnected' });
    const { browser, back } = await consented(userId, await linkFor(connectionId));
    const other = await linkFor(connectionId);
    expect(await disconnect(connectionId)).toMatchObject({ status: 'disconnected', revoked: null });
    expect((await newBrowser().get(other)).status).toBe(410);
    expect((await browser.get(back)).status).toBe(410);
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'disconnected' });
    const events = await stage.events({ kind: 'connection.disconnected', connectionId });
    expect(events).toHaveLength(1);
  });

  test.each(['that connection', 'any connection'])(
    'a consent that began before a disconnect by the operator, with a link for %s, is refused',
    async (which) => {
      const { connectionId, userId } = await stage.company();
      const { browser, back } = await consented(
        userId,
        await linkFor(which === 'any connection' ? undefined : connectionId),
      );
      await disconnect(connectionId);
      const page = await text(await browser.get(back));
      expect(page).toMatchObject({ status: 410, text: expect.stringContaining('This link no longer works') });
      expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'disconnected' });
      expect((await stage.admin.connections()).find((user) => user.userId === userId)!.refreshTokens).toBe(0);
    },
  );

  test('a link from before a disconnect by the user still works', async () => {
    const { connectionId, userId } = await stage.company();
    const link = await linkFor(connectionId);
    await stage.admin.endConnections(userId);
    await stage.sync(connectionId);
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'disconnected' });
    const { browser, back } = await consented(userId, link);
    expect((await browser.get(back)).status).toBe(200);
  });
});

test('pages of the connect flow allow no scripts, forms or frames', async () => {
  const pages = ['/connect', '/oauth/callback'];
  for (const path of pages) {
    const { headers } = await newBrowser().get(stage.ground.publicUrl + path);
    expect(Object.fromEntries(headers), path).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': expect.stringMatching(
        /default-src 'none'.*base-uri 'none'.*form-action 'none'.*frame-ancestors 'none'/,
      ),
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
    });
  }
});

/** A web process at another address, with a library that has this address registered. */
async function at(publicUrl: (port: number) => string) {
  const port = await freePort();
  const ground = await newGround({ port, environment: { PUBLIC_URL: publicUrl(port) } });
  const { library, admin } = await startTestLibrary({ redirectUris: [`${publicUrl(port)}/oauth/callback`] });
  const mirror = await startMirror(ground, library, 'web');
  return {
    port,
    library,
    admin,
    mirror,
    link: async () => (await mirror.service.operations.createConnectLink({})).url,
    async close() {
      await mirror.stop();
      await library.close();
      await ground.clear();
    },
  };
}

test('the cookie of the connect flow is secure on https', { tags: 'slow' }, async () => {
  const web = await at(() => 'https://mirror.example.com');
  try {
    const link = await web.link();
    expect(link).toMatch(/^https:\/\/mirror\.example\.com\/connect\?link=/);
    const answer = await newBrowser().get(link.replace('https://mirror.example.com', `http://127.0.0.1:${web.port}`));
    expect(answer.headers.getSetCookie()[0]).toMatch(/; HttpOnly; Secure; SameSite=Lax$/);
    expect(new URL(answer.headers.get('location')!).searchParams.get('redirect_uri')).toBe(
      'https://mirror.example.com/oauth/callback',
    );
  } finally {
    await web.close();
  }
});

describe('PUBLIC_URL with a path', () => {
  test.each(['keeps it', 'takes it off'])('a PUBLIC_URL with a path works behind a proxy that %s', async (what) => {
    const proxyPort = await freePort();
    const web = await at(() => `http://127.0.0.1:${proxyPort}/tools/mirror`);
    const proxy = createServer((incoming, outgoing) => {
      const path = what === 'keeps it' ? incoming.url : incoming.url!.replace('/tools/mirror', '');
      const { method, headers } = incoming;
      request({ port: web.port, path, method, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode!, answer.headers);
        answer.pipe(outgoing);
      }).end();
    }).listen(proxyPort, '127.0.0.1');
    try {
      const browser = newBrowser();
      const link = await web.link();
      expect(link).toMatch(/\/tools\/mirror\/connect\?link=/);
      expect((await browser.get(link)).headers.getSetCookie()[0]).toContain('Path=/tools/mirror/oauth/callback;');
      expect(await browser.visit(link)).toMatchObject({
        status: 200,
        text: expect.stringContaining('You are connected'),
      });
      expect((await fetch(`http://127.0.0.1:${proxyPort}/tools/mirror/healthz`)).status).toBe(200);
    } finally {
      proxy.closeAllConnections();
      proxy.close();
      await web.close();
    }
  });
});

/** Moves the library's clock: last. */
test('an expired code makes no connection', async () => {
  const { browser, back } = await consented(await somebody());
  await stage.admin.advanceClock(601);
  const page = await text(await browser.get(back));
  expect(page).toMatchObject({ status: 400, text: expect.stringContaining('Perhaps it took too long') });
});
