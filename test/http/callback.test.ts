import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { newBrowser } from '../support/browser.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { button, connecting, text } from './connecting.ts';

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

const { linkFor, connections, somebody, consented } = connecting(() => stage);

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

/** Moves the library's clock: last. */
test('an expired code makes no connection', async () => {
  const { browser, back } = await consented(await somebody());
  await stage.admin.advanceClock(601);
  const page = await text(await browser.get(back));
  expect(page).toMatchObject({ status: 400, text: expect.stringContaining('Perhaps it took too long') });
});
