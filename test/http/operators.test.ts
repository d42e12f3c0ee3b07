import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { contract } from '../support/contract.ts';
import { startMirror } from '../support/mirror.ts';
import { syncsDue, untilARound } from '../support/rounds.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

/** One process serves the operators; another one does the work. */
let scene: Scene;
let worker: Awaited<ReturnType<typeof startMirror>>;
let id: string;
beforeAll(async () => {
  scene = await newScene({ role: 'web', environment: { TRANSFER_STALL_TIMEOUT: '60s', TRANSCRIPT_GIVE_UP: '500ms' } });
  worker = await startMirror(scene.ground, scene.library, 'worker');
  id = scene.connectionId;
  await scene.mirror.quiet();
});
afterAll(async () => {
  await worker?.stop();
  await scene?.close();
});

async function ask(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
  const response = await fetch(`${scene.ground.publicUrl}/api${path}`, {
    method,
    headers: {
      authorization: 'Bearer the-token-of-the-operators',
      accept: 'application/json',
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  // biome-ignore lint/suspicious/noExplicitAny: tests say what they expect
  const answer = { status: response.status, body: (await response.json()) as any };
  const type = response.headers.get('content-type');
  await (await contract(scene.ground.publicUrl)).check(method, `/api${path}`, { ...answer, type });
  return answer;
}
const refused = (status: number, code: string) => ({ status, body: { status, code, detail: expect.any(String) } });
const post = (verb: string, of = id) => ask('POST', `/connections/${of}/${verb}`);
const deeds = async (query: string) => (await ask('GET', `/events?${query}`)).body.events;

describe('pause and resume', () => {
  test('a pause stops transfers and syncs of a connection in all processes, and a resume continues them', {
    tags: 'slow',
  }, async () => {
    await scene.admin.addFault({ endpoint: 'media', stallAfter: 1000 });
    const inHand = await scene.upload({ name: 'slow.bin', content: { seed: 1, size: 100_000 } });
    await scene.resync({ mode: 'incremental' });
    await scene.mirror.assetIn(inHand, 'transferring');
    expect((await ask('GET', `/assets/${inHand}`)).body).toMatchObject({ working: true, recordKey: null });

    const paused = await post('pause');
    expect(paused).toMatchObject({ status: 200, body: { id, status: 'paused', nextSyncAt: null } });
    expect(await post('pause')).toEqual(paused);
    await until('the transfer to be handed back', async () =>
      worker.lines.find((line) => line.event === 'asset.handed_back' && line.assetId === inHand),
    );
    expect((await ask('GET', `/assets/${inHand}`)).body).toMatchObject({ state: 'pending', working: false });
    await scene.admin.clearFaults();
    await scene.admin.clearRequests();
    expect(await post('resync')).toMatchObject({ status: 400 });
    expect(await ask('POST', `/connections/${id}/resync`, { mode: 'full' })).toMatchObject(
      refused(409, 'connection_paused'),
    );
    const meanwhile = await scene.upload();
    await scene.query(syncsDue);
    const another = await startMirror(scene.ground, scene.library, 'worker');
    await until('a round of its dispatcher', async () => (await scene.query(untilARound)).length === 0);
    await another.stop();
    await scene.query('UPDATE connections SET scheduled_sync_at = now()');
    expect(await scene.admin.requests()).toEqual([]);

    expect(await post('resume')).toMatchObject({
      status: 200,
      body: { status: 'active', nextSyncAt: expect.any(String) },
    });
    expect((await post('resume')).body.status).toBe('active');
    for (const asset of [inHand, meanwhile]) await scene.mirror.assetIn(asset, 'mirrored');
    const kinds = (await deeds(`connectionId=${id}`)).map((event: { kind: string }) => event.kind);
    expect(kinds.filter((kind: string) => kind === 'connection.paused')).toHaveLength(1);
    expect(kinds.filter((kind: string) => kind === 'connection.resumed')).toHaveLength(1);
  });

  test('a pause interrupts a listing, and a resume continues it', async () => {
    for (let i = 0; i < 3; i++) await scene.upload({ name: `listed ${i}` });
    await scene.mirror.quiet();
    await scene.admin.clearRequests();
    await scene.admin.addFault({ endpoint: 'assets', latency: 60_000 });
    const syncId = await scene.resync({ mode: 'full' });
    await until(
      'the listing to be asked for',
      async () => (await scene.admin.requests({ endpoint: 'assets' })).length > 0,
    );
    expect((await ask('GET', `/syncs/${syncId}`)).body.status).toBe('running');
    await post('pause');
    await scene.admin.clearFaults();
    await post('resume');
    const done = await until('the run to end', async () => {
      const { body } = await ask('GET', `/syncs/${syncId}`);
      return body.finishedAt !== null && body;
    });
    expect(done).toMatchObject({ status: 'done', mode: 'full', pages: expect.any(Number), new: 3, error: null });
    await scene.mirror.quiet();
  });
});

describe('retry', () => {
  test('a retry of one or all failed assets starts them afresh', async () => {
    await scene.admin.addFault({ endpoint: 'asset', body: { asset: 'nonsense' } });
    const ids = [await scene.upload(), await scene.upload(), await scene.upload()];
    await scene.resync({ mode: 'incremental' });
    for (const asset of ids) await scene.mirror.assetIn(asset, 'failed');
    const { body } = await ask('GET', `/assets/${ids[0]}`);
    expect(body).toMatchObject({
      state: 'failed',
      reason: { code: 'invalid_answer', text: expect.any(String) },
      nextAt: null,
      key: null,
      upload: null,
    });
    await scene.admin.clearFaults();

    expect(await ask('POST', `/assets/${ids[0]}/retry`)).toMatchObject({
      status: 202,
      body: { id: ids[0], attempts: 0 },
    });
    await scene.mirror.assetIn(ids[0]!, 'mirrored');
    expect(await post('retry-failed')).toMatchObject({ status: 202, body: { retried: 2 } });
    for (const asset of ids) await scene.mirror.assetIn(asset, 'mirrored');
    expect(await post('retry-failed')).toMatchObject({ status: 202, body: { retried: 0 } });

    const whole = (await ask('GET', `/assets/${ids[0]}`)).body;
    expect(whole).toMatchObject({
      state: 'mirrored',
      recordKey: `${whole.key}.asset.json`,
      mimeType: 'application/octet-stream',
      checksums: expect.any(Object),
      sidecarFiles: [{ key: `${whole.key}.asset.json` }],
      transcript: 'none',
      thumbnail: 'none',
    });
    // A second request changes nothing: it is complete.
    expect(whole).toMatchObject((await ask('POST', `/assets/${ids[0]}/retry`)).body);
  });

  test('a retry of an asset whose transcript was given up fetches it, and not the media', async () => {
    const id = await scene.film();
    await scene.admin.addFault({ endpoint: 'transcript', assetId: id, status: 404 });
    await scene.resync({ mode: 'incremental' });
    await until('it to be given up', async () => (await scene.mirror.asset(id))?.transcript === 'gave_up');
    expect((await ask('GET', `/assets/${id}`)).body).toMatchObject({ state: 'mirrored', nextAt: null });
    await scene.admin.clearFaults();
    await ask('POST', `/assets/${id}/retry`);
    await until('the transcript', async () => (await scene.mirror.asset(id)).transcript === 'mirrored');
    expect((await scene.admin.requests({ endpoint: 'media', assetId: id })).length).toBe(1);
  });

  test.each(['pause', 'resume', 'disconnect', 'retry-failed'])(
    '%s of an unknown connection is answered with connection_not_found',
    async (verb) => {
      expect(await post(verb, 'nobody')).toMatchObject(refused(404, 'connection_not_found'));
    },
  );

  test('a retry of an unknown or gone asset is refused with the reason', async () => {
    expect(await ask('POST', '/assets/nothing/retry')).toMatchObject(refused(404, 'asset_not_found'));
    expect(await ask('GET', '/assets/nothing')).toMatchObject(refused(404, 'asset_not_found'));
    const longest = encodeURIComponent('漢'.repeat(666));
    expect(await ask('GET', `/assets/${longest}`)).toMatchObject(refused(404, 'asset_not_found'));
    const gone = await scene.upload();
    const kept = await scene.upload();
    await scene.resync({ mode: 'incremental' });
    for (const asset of [gone, kept]) await scene.mirror.assetIn(asset, 'mirrored');
    await scene.admin.removeAsset(gone);
    await scene.resync();
    await scene.mirror.assetIn(gone, 'gone');
    expect(await ask('POST', `/assets/${gone}/retry`)).toMatchObject(refused(409, 'asset_gone'));
  });
});

describe('syncs', () => {
  test('syncs are listed newest first, in pages without gaps or repeats', async () => {
    const all = (await ask('GET', `/syncs?connectionId=${id}&limit=250`)).body.syncs;
    expect(all.length).toBeGreaterThan(3);
    const found: string[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { body } = await ask('GET', `/syncs?limit=2${cursor && `&cursor=${cursor}`}`);
      found.push(...body.syncs.map((sync: { id: string }) => sync.id));
      cursor = body.nextCursor;
    }
    expect(found).toEqual(all.map((sync: { id: string }) => sync.id));
    const times = all.map((sync: { requestedAt: string }) => sync.requestedAt);
    expect(times).toEqual([...times].sort().reverse());
    expect(await ask('GET', '/syncs?connectionId=nobody')).toMatchObject(refused(404, 'connection_not_found'));
    expect(await ask('GET', '/syncs/none')).toMatchObject(refused(404, 'sync_not_found'));
    expect(await ask('GET', '/syncs?cursor=AA')).toMatchObject(refused(400, 'invalid_cursor'));
  });
});

describe('connections', () => {
  test('connections are listed in pages, and searched by user, company and status', async () => {
    const { body } = await ask('GET', '/connections?limit=1');
    expect(body).toMatchObject({ connections: [{ id }], nextCursor: null });
    const { email } = body.connections[0].user;
    for (const query of [`q=${email.slice(1, 6).toUpperCase()}`, 'q=acm', `q=${id}`, 'status=active']) {
      expect((await ask('GET', `/connections?${query}`)).body.connections, query).toHaveLength(1);
    }
    for (const query of ['q=nobody', 'status=paused', 'q=%25']) {
      expect((await ask('GET', `/connections?${query}`)).body.connections, query).toHaveLength(0);
    }
  });
});

describe('the audit log', () => {
  test('the audit log has the actor, the action, its target and its outcome', async () => {
    const [pause] = await deeds(`connectionId=${id}&kind=operator.pauseConnection&limit=1`);
    expect(pause).toMatchObject({ assetId: null, data: { by: 'ADMIN_TOKEN', outcome: 'done' } });
    const [refusal] = await deeds('kind=operator.retryAsset&limit=1');
    expect(refusal).toMatchObject({ data: { by: 'ADMIN_TOKEN', outcome: 'refused', code: 'asset_gone' } });
    expect(refusal.data.reason).toMatch(/^The asset is no longer in the library/);
    const [resync] = await deeds(`connectionId=${id}&kind=operator.resyncConnection&limit=1`);
    expect(resync.data).toEqual({
      by: 'ADMIN_TOKEN',
      outcome: 'done',
      requestId: expect.any(String),
    });
    // Reads and unauthenticated requests are not in the audit log. Syncs and verifications may add events.
    await scene.mirror.quiet();
    await scene.checked();
    const before = (await deeds('limit=1'))[0].id;
    await ask('GET', '/status');
    await ask('POST', `/connections/${id}/pause`, undefined, { authorization: 'Bearer wrong' });
    expect((await deeds('limit=1'))[0].id).toBe(before);
    const long = Array.from({ length: 1000 }, (_, i) => `asset ${i}`);
    await ask('POST', `/connections/${id}/resync`, { mode: 'incremental', assetIds: long });
    const [entry] = (await ask('GET', '/audit?action=resyncConnection&limit=1')).body.entries;
    expect(entry.request.assetIds).toEqual([...long.slice(0, 50), 'and 950 more']);
    expect(entry.targetId).toMatch(/^[\w-]+$/);
  });
});

describe('disconnect', () => {
  test('a disconnect ends the connection here and at the library, and a reconnect brings it back', async () => {
    expect((await scene.admin.connections())[0]!.refreshTokens).toBe(1);
    const ended = await post('disconnect');
    expect(ended).toMatchObject({ status: 200, body: { id, status: 'disconnected', revoked: true, nextSyncAt: null } });
    expect((await post('disconnect')).body).toEqual({ ...ended.body, revoked: null });
    expect((await scene.admin.connections()).flatMap((it) => it.refreshTokens).reduce((a, b) => a + b, 0)).toBe(0);
    for (const verb of ['pause', 'resume', 'retry-failed']) {
      expect(await post(verb)).toMatchObject(refused(409, 'connection_disconnected'));
    }
    const [asset] = (await ask('GET', '/assets?state=mirrored&limit=1')).body.assets;
    expect(await ask('POST', `/assets/${asset.id}/retry`)).toMatchObject(refused(409, 'asset_not_readable'));

    expect(await scene.mirror.connect()).toBe(id);
    expect((await ask('GET', `/connections/${id}`)).body).toMatchObject({ status: 'active', lastError: null });
  });
});
