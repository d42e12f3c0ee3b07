import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newBrowser } from '../support/browser.ts';
import { connectAs, newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(() => stage?.close());

type Tags = Record<string, string>;

async function somebody(): Promise<string> {
  const userId = `user-${randomUUID().slice(0, 8)}`;
  await stage.admin.addUser({ id: userId, name: userId, email: `${userId}@example.com` });
  await stage.admin.addCompany({ id: `company of ${userId}`, name: userId, userIds: [userId] });
  return userId;
}
const connect = (userId: string, tags?: Tags) => connectAs(stage.mirror, userId, tags ? { tags } : {});
const tagsOf = async (id: string): Promise<Tags> => (await stage.mirror.api('GET', `/connections/${id}`)).tags;
const patch = (id: string, tags: object | null) => stage.mirror.api('PATCH', `/connections/${id}`, { tags });
const filtered = async (...tags: string[]): Promise<string[]> => {
  const query = new URLSearchParams([['limit', '250'], ...tags.map((tag): [string, string] => ['tag', tag])]);
  return (await stage.mirror.api('GET', `/connections?${query}`)).connections.map(({ id }: { id: string }) => id);
};

test('the tags of a link are those of the connection, until a link with others reconnects it', {
  tags: 'slow',
}, async () => {
  const userId = await somebody();
  const id = await connect(userId, { client: 'acme', tier: 'gold' });
  expect(await tagsOf(id)).toEqual({ client: 'acme', tier: 'gold' });
  await connect(userId);
  expect(await tagsOf(id)).toEqual({ client: 'acme', tier: 'gold' });
  await connect(userId, { client: 'globex' });
  expect(await tagsOf(id)).toEqual({ client: 'globex' });
  await connect(userId, {});
  expect(await tagsOf(id)).toEqual({});
  expect(await tagsOf(await connect(await somebody()))).toEqual({});
});

test('a connection that is finished in the background gets the tags of its link, too', async () => {
  const userId = await somebody();
  const { url } = await stage.mirror.api('POST', '/connect-links', { tags: { client: 'späte Firma' } });
  await stage.admin.setFaults({ endpoint: 'me', retryAfter: 21, times: 1 });
  const browser = newBrowser();
  const consent = (await browser.get(url)).headers.get('location');
  expect((await browser.visit(`${consent}&login_hint=${userId}`)).status).toBe(202);
  await stage.ground.endWaits();
  await until('the connection', async () => (await filtered('client=späte Firma')).length === 1);
});

test('a link for another connection does not change the tags of the user who signs in', async () => {
  const [owner, other] = [await somebody(), await somebody()];
  const [mine, theirs] = [await connect(owner, { client: 'a' }), await connect(other, { client: 'b' })];
  const request = { connectionId: mine, tags: { client: 'c' } };
  await expect(connectAs(stage.mirror, other, request)).rejects.toThrow(/409/);
  expect([await tagsOf(mine), await tagsOf(theirs)]).toEqual([{ client: 'a' }, { client: 'b' }]);
});

test('a link whose tags were altered is refused', async () => {
  const { url } = await stage.mirror.api('POST', '/connect-links', { tags: { client: 'acme' } });
  const link = new URL(url);
  const [body, signature] = link.searchParams.get('link')!.split('.');
  const payload = JSON.parse(Buffer.from(body!, 'base64url').toString());
  const forged = Buffer.from(JSON.stringify({ ...payload, t: { client: 'globex' } })).toString('base64url');
  link.searchParams.set('link', `${forged}.${signature}`);
  expect((await newBrowser().get(link.href)).status).toBe(400);
});

test('connections are filtered by tags, of which all must match', async () => {
  const client = randomUUID();
  const gold = await connect(await somebody(), { client, tier: 'gold' });
  const silver = await connect(await somebody(), { client, tier: 'silver' });
  await connect(await somebody(), { other_key: client, 'with-hyphen': 'a=b "c"' });
  expect(await filtered(`client=${client}`)).toEqual([gold, silver]);
  expect(await filtered(`client=${client}`, 'tier=silver')).toEqual([silver]);
  expect(await filtered('tier=silver', 'tier=gold')).toEqual([]);
  expect(await filtered('client=%')).toEqual([]);
  expect(await filtered(`other_key=${client}`, 'with-hyphen=a=b "c"')).toHaveLength(1);
  expect((await stage.mirror.api('GET', `/connections?tag=client=${client}&limit=1`)).nextCursor).toEqual(
    expect.any(String),
  );
  for (const wrong of ['client', 'Client=x', 'client=', '=x']) {
    await expect(filtered(wrong)).rejects.toThrow(/400 .*invalid_request.*key=value such as client=acme/);
  }
});

test('tags are added, replaced and removed, with an event and an entry in the audit log', async () => {
  const id = await connect(await somebody(), { client: 'acme', tier: 'gold' });
  expect((await patch(id, { tier: null, region: 'eu', client: 'globex' })).tags).toEqual({
    client: 'globex',
    region: 'eu',
  });
  const { settings } = await stage.mirror.api('GET', `/connections/${id}`);
  expect(settings.own).toEqual([]);
  await stage.mirror.api('PATCH', `/connections/${id}`, { concurrency: 2 });
  expect(await tagsOf(id)).toEqual({ client: 'globex', region: 'eu' });
  const headers = { accept: 'application/json', authorization: 'Bearer the-token-of-the-operators' };
  const answer = await fetch(`${stage.ground.publicUrl}/api/events?connectionId=${id}&limit=50`, { headers });
  const { events } = (await answer.json()) as { events: { tags: Tags }[] };
  const change = { tags: { tier: null, region: 'eu', client: 'globex' } };
  expect(events).toContainEqual(expect.objectContaining({ kind: 'connection.changed', data: change }));
  const { entries } = await stage.mirror.service.operations.auditLog({ q: id, action: 'changeConnection' });
  expect(entries).toContainEqual(expect.objectContaining({ request: change, outcome: 'done' }));
  for (const { tags } of events) expect(tags).toEqual({ client: 'globex', region: 'eu' });
  await patch(id, null);
  expect(await tagsOf(id)).toEqual({});
  const ten = (name: string, value: string | null) =>
    Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`${name}${i}`, value]));
  await patch(id, ten('a', 'x'));
  await expect(patch(id, { b: 'x' })).rejects.toThrow(/400 .*too_many_tags/);
  await patch(id, { ...ten('a', null), ...ten('b', 'x') });
  expect(await tagsOf(id)).toEqual(ten('b', 'x'));
});

test.each<[string, object]>([
  ['a key with capitals', { Client: 'a' }],
  ['a key that begins with a digit', { '1st': 'a' }],
  ['an empty key', { '': 'a' }],
  ['a long key', { [`a${'b'.repeat(31)}`]: 'a' }],
  ['an empty value', { client: '' }],
  ['a line end', { client: 'a\nb' }],
  ['NUL', { client: 'a\0' }],
  ['a control character', { client: 'a\u009bb' }],
  ['a change of direction', { client: 'a\u202eb' }],
  ['a lone surrogate', { client: 'a\ud800' }],
  ['a space at the end', { client: 'a ' }],
  ['a long value', { client: 'a'.repeat(101) }],
  ['a number', { client: 1 }],
  ['11 tags', Object.fromEntries(Array.from({ length: 11 }, (_, n) => [`k${n}`, 'v']))],
])('tags with %s are refused', async (_what, tags) => {
  await expect(stage.mirror.api('POST', '/connect-links', { tags })).rejects.toThrow(/400 .*invalid_request/);
});

test('the longest tags fit into a link, and a connection has at most 10', async () => {
  const many = (letter: string) =>
    Object.fromEntries(Array.from({ length: 10 }, (_, n) => [`${letter}${n}`.padEnd(31, 'x'), 'v'.repeat(100)]));
  const id = await connect(await somebody(), many('a'));
  expect(await tagsOf(id)).toEqual(many('a'));
  await expect(patch(id, { one: 'more' })).rejects.toThrow(/400 .*too_many_tags/);
  const wide = Object.fromEntries(Object.keys(many('b')).map((key) => [key, '雲'.repeat(100)]));
  await expect(stage.mirror.api('POST', '/connect-links', { tags: wide })).rejects.toThrow(/400 .*link_too_long/);
  expect((await patch(id, Object.fromEntries(Object.keys(many('a')).map((key) => [key, null])))).tags).toEqual({});
  expect((await patch(id, wide)).tags).toEqual(wide);
});

test('assets are filtered by the tags of their connection', async () => {
  const userId = await somebody();
  const id = await connect(userId, { client: 'with assets', tier: 'gold' });
  const [asset] = await stage.upload(`company of ${userId}`);
  await stage.sync(id);
  const found = async (path: string) => stage.mirror.api('GET', path);
  const ids = async (query: string) => (await found(`/assets?${query}`)).assets.map((one: { id: string }) => one.id);
  expect(await ids('connectionTag=client%3Dwith+assets')).toEqual([asset]);
  expect(await ids('connectionTag=client%3Dwith+assets&connectionTag=tier%3Dgold')).toEqual([asset]);
  expect(await ids('connectionTag=client%3Dwith+assets&connectionTag=tier%3Dsilver')).toEqual([]);
  expect(await found('/asset-facets?connectionTag=tier%3Dgold')).toMatchObject({ matching: 1 });
  await expect(found('/assets?connectionTag=nothing')).rejects.toThrow(/400/);
});
