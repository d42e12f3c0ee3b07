import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newBrowser } from '../support/browser.ts';
import { connectAs, newStage, type Stage } from '../support/stage.ts';
import { button, connecting, text } from './connecting.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

const { linkFor, connections, somebody, consented } = connecting(() => stage);

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

  test('a reconnect leaves a paused connection paused, and its page says so', async () => {
    const { connectionId, userId } = await stage.company();
    await stage.mirror.api('POST', `/connections/${connectionId}/pause`);
    const { browser, back } = await consented(userId, await linkFor(connectionId));
    const page = await text(await browser.get(back));
    expect(page).toMatchObject({ status: 200, text: expect.stringMatching(/You are connected again.* is paused/s) });
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'paused' });
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
