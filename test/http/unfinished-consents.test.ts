import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';
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
});
