import { rename } from 'node:fs/promises';
import { connect } from 'node:net';
import { Readable } from 'node:stream';
import { text as toText } from 'node:stream/consumers';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { contract } from '../support/contract.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

let stage: Stage;
let connectionId: string;
let companyId: string;
let ids: string[];
beforeAll(async () => {
  stage = await newStage();
  ({ connectionId, companyId } = await stage.company());
  ids = (await stage.upload(companyId, 25)).sort();
  await stage.run(connectionId);
});
afterAll(async () => {
  await stage?.close();
});

async function ask(method: string, path: string, options: { body?: string; headers?: Record<string, string> } = {}) {
  const { body, headers } = options;
  const response = await fetch(stage.ground.publicUrl + path, {
    method,
    headers: {
      authorization: 'Bearer the-token-of-the-operators',
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body }),
  });
  const text = await response.text();
  const answer = {
    status: response.status,
    type: response.headers.get('content-type'),
    challenge: response.headers.get('www-authenticate'),
    // biome-ignore lint/suspicious/noExplicitAny: tests say what they expect
    body: (text === '' ? undefined : JSON.parse(text)) as any,
  };
  await (await contract(stage.ground.publicUrl)).check(method, path, answer);
  return answer;
}
const problem = (status: number, code: string, detail: unknown = expect.any(String)) => ({
  status,
  type: expect.stringMatching(/^application\/problem\+json/),
  body: {
    type: expect.stringMatching(/docs\/reference\/api\.md#problems$/),
    title: expect.any(String),
    status,
    code,
    detail,
    requestId: expect.any(String),
  },
});

describe('the operator token', () => {
  test.each([
    ['none', ''],
    ['another', 'Bearer another'],
    ['a part of it', 'Bearer the-token-of-the-operator'],
    ['more than it', 'Bearer the-token-of-the-operators2'],
    ['another scheme', 'Basic the-token-of-the-operators'],
    ['an empty one', 'Bearer '],
    ['one of other letters', 'Bearer the-token-of-the-operatörs'],
  ])('the API refuses a request with a wrong token (%s)', async (_, authorization) => {
    const answer = await ask('GET', '/api/status', { headers: { authorization } });
    expect(answer).toMatchObject({ ...problem(401, 'unauthorized'), challenge: 'Bearer realm="asset-mirror"' });
  });

  test('every route of the API needs the operator token', async () => {
    const headers = { authorization: '' };
    expect((await ask('GET', `/api/connections/${connectionId}`, { headers })).status).toBe(401);
    expect((await ask('POST', '/api/connect-links', { headers })).status).toBe(401);
  });

  test('the scheme of the Authorization header may be in any case', async () => {
    const answer = await ask('GET', '/api/status', {
      headers: { authorization: 'bearer   the-token-of-the-operators' },
    });
    expect(answer.status).toBe(200);
  });

  test('health checks need no token', async () => {
    for (const path of ['/healthz', '/readyz', '/']) {
      expect((await fetch(stage.ground.publicUrl + path)).status, path).toBe(200);
    }
  });
});

describe('API requests', () => {
  test.each([
    ['{', 'invalid_json'],
    ['"text"', 'invalid_request'],
    ['[]', 'invalid_request'],
    ['{"connectionId":7}', 'invalid_request'],
    ['{"connectionId":""}', 'invalid_request'],
    ['{"connectionId":"a\\u0000b"}', 'invalid_request'],
    ['{"connection":"x"}', 'invalid_request'],
  ])('a request for a connect link with the body %s is refused', async (body, code) => {
    expect(await ask('POST', '/api/connect-links', { body })).toMatchObject(problem(400, code));
  });

  test.each([undefined, '', '{}', 'null'])('a request for a connect link needs no body (%s)', async (body) => {
    const answer = await ask('POST', '/api/connect-links', body === undefined ? {} : { body });
    expect(answer.status).toBe(201);
    expect(answer.body).toEqual({ url: expect.stringContaining('/connect?link='), expiresAt: expect.any(String) });
    expect(Date.parse(answer.body.expiresAt)).toBeGreaterThan(Date.now());
  });

  test('a body of another type, or one that is too large, is refused', async () => {
    for (const type of ['application/x-www-form-urlencoded', 'text/plain']) {
      expect(await ask('POST', '/api/connect-links', { body: '{}', headers: { 'content-type': type } })).toMatchObject(
        problem(415, 'unsupported_media_type', expect.stringContaining('Content-Type: application/json')),
      );
    }
    const body = JSON.stringify({ connectionId: 'x'.repeat(2 ** 21) });
    expect(await ask('POST', '/api/connect-links', { body })).toMatchObject(problem(413, 'payload_too_large'));
  });

  test.each(['nobody', '%00', 'a%2Fb', '%F0%9F%8E%AC'])(
    'the unknown connection %s is reported as not found',
    async (id) => {
      const code = id === '%00' ? problem(400, 'invalid_request') : problem(404, 'connection_not_found');
      expect(await ask('GET', `/api/connections/${id}`)).toMatchObject(code);
      expect(await ask('POST', `/api/connections/${id}/resync`, { body: '{"mode":"full"}' })).toMatchObject(code);
      const body = JSON.stringify({ connectionId: decodeURIComponent(id) });
      expect(await ask('POST', '/api/connect-links', { body })).toMatchObject(code);
    },
  );

  test.each([
    ['/api/connections/%ff', 400, 'invalid_request'],
    ['/api/connections/%', 400, 'invalid_request'],
    [`/api/connections/${'x'.repeat(7000)}`, 414, 'address_too_long'],
  ])('an invalid address (%.30s) is answered with a problem and a request id', async (path, status, code) => {
    const answer = await fetch(stage.ground.publicUrl + path);
    const body = (await answer.json()) as { requestId: string; detail: string };
    expect([answer.status, answer.headers.get('content-type')]).toEqual([
      status,
      expect.stringMatching(/^application\/problem/),
    ]);
    expect(body).toMatchObject({ status, code, requestId: answer.headers.get('x-request-id') });
    expect(body.detail).not.toContain('xxx');
  });

  test.each([
    ['headers that are too long', `GET /api/status HTTP/1.1\r\nHost: h\r\nCookie: ${'x'.repeat(20_000)}\r\n\r\n`, 431],
    ['no request', 'nothing of the kind\r\n\r\n', 400],
  ])('an HTTP error (%s) is answered with a problem and a request id', async (_, text, status) => {
    const socket = connect(Number(new URL(stage.ground.publicUrl).port), '127.0.0.1');
    socket.end(text);
    const [head, body] = (await toText(socket)).split('\r\n\r\n');
    expect(head).toMatch(new RegExp(`^HTTP/1.1 ${status} .*\r\nContent-Type: application/problem\\+json\r\n`));
    expect(JSON.parse(body!)).toMatchObject({ status, detail: expect.any(String), requestId: expect.any(String) });
  });

  test('an invalid request on the connection of a stream writes nothing into the stream', async () => {
    const socket = connect(Number(new URL(stage.ground.publicUrl).port), '127.0.0.1');
    socket.write('GET /api/events HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer the-token-of-the-operators\r\n\r\n');
    let received = '';
    socket.on('data', (chunk) => (received += chunk));
    await until('the stream to begin', () => received.includes('text/event-stream') && received.includes('\r\n\r\n'));
    socket.write('nothing of the kind\r\n\r\n');
    await until('the end', () => socket.destroyed || socket.readableEnded);
    expect(received.match(/HTTP\/1\.1/g)).toHaveLength(1);
  });

  test.each(['/api/nothing', '/nothing', '/api'])('an unknown path (%s) is answered with not_found', async (path) => {
    expect(await ask('GET', path)).toMatchObject(problem(404, 'not_found'));
  });

  test('the API returns a connection with its companies, counts and times', async () => {
    const { body } = await ask('GET', `/api/connections/${connectionId}`);
    expect(body).toMatchObject({
      id: connectionId,
      status: 'active',
      companies: [{ id: companyId, name: `The company ${companyId}`, highWaterMark: expect.any(String) }],
      counts: { byState: { pending: 25, mirrored: 0, failed: 0 } },
      bytes: 0,
      lastError: null,
    });
    for (const time of [body.connectedAt, body.lastSyncAt, body.nextSyncAt]) expect(Date.parse(time)).not.toBeNaN();
    expect((await ask('GET', '/api/connections')).body).toEqual({ connections: [body], nextCursor: null });
    expect(JSON.stringify(body)).not.toMatch(/svc|token|sealed|v1\./);
  });

  test('the API returns the projects of a connection in the order of their names', async () => {
    const path = `/api/connections/${connectionId}/projects`;
    expect(await ask('GET', path)).toMatchObject({ status: 200, body: { projects: [] } });
    for (const [id, name] of [
      ['p10', 'Project 10'],
      ['p9', 'Project 9'],
    ] as const) {
      await stage.admin.addProject({ id: `${companyId}-${id}`, companyId, name });
    }
    expect((await ask('GET', path)).body.projects).toEqual([
      { id: `${companyId}-p9`, name: 'Project 9', companyId },
      { id: `${companyId}-p10`, name: 'Project 10', companyId },
    ]);
    await stage.admin.addFault({ endpoint: 'projects', status: 404, body: { error: 'nothing here' } });
    expect(await ask('GET', path)).toMatchObject(problem(503, 'library_not_available', expect.stringMatching(/404/)));
    await stage.admin.clearFaults();
    expect(await ask('GET', '/api/connections/nobody/projects')).toMatchObject(problem(404, 'connection_not_found'));
  });

  test('the status counts connections, assets, syncs and jobs', async () => {
    expect((await ask('GET', '/api/status')).body).toMatchObject({
      connections: { active: 1, paused: 0, disconnected: 0 },
      assets: { total: 25, byState: { pending: 25 } },
      outstanding: { assets: 25, sidecars: 0 },
      timeLeft: null,
      syncs: { waiting: 0, running: 0 },
      queues: { syncs: {}, assets: {} },
    });
  });
});

describe('a resync', () => {
  const resync = (body: unknown) =>
    ask('POST', `/api/connections/${connectionId}/resync`, {
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });

  test('a resync is accepted, and recorded at once', async () => {
    // The library lists this project since the test above, but no asset belongs to it.
    const scope = { companyId, projectId: `${companyId}-p9`, assetType: 'audio', assetIds: ['d'] };
    const answer = await resync({ mode: 'full', since: '1970-01-01T02:00:00.005+02:00', ...scope });
    expect(answer.status).toBe(202);
    expect(await stage.store.syncs.get(answer.body.syncId)).toMatchObject({
      status: 'waiting',
      mode: 'full',
      scope: { since: 5, ...scope },
    });
    expect((await ask('GET', `/api/syncs/${answer.body.syncId}`)).body.scope.since).toBe('1970-01-01T00:00:00.005Z');
    const inMs = await resync({ mode: 'full', since: 5, ...scope });
    expect(inMs).toMatchObject({ status: 202, body: answer.body });
    expect(
      (await resync({ mode: 'full', assetIds: Array.from({ length: 1000 }, (_, i) => `asset ${i}`) })).status,
    ).toBe(202);
  });

  test.each([
    [{ assetType: 'nosuch' }, 'No asset has the type nosuch. The types are videos, ', 'videos'],
    [{ companyId: 'nosuch' }, 'This connection cannot read a company nosuch. It reads ', 'company-'],
    [{ projectId: 'nosuch' }, 'No asset belongs to a project nosuch. The projects are ', 'p9'],
  ])('a resync of the unknown %j is refused with the known names', async (scope, words, known) => {
    const refused = await resync({ mode: 'full', ...scope });
    expect(refused).toMatchObject({ status: 400, body: { code: 'unknown_name', detail: expect.any(String) } });
    expect(refused.body.detail).toContain(words);
    const [field] = Object.keys(scope);
    expect(refused.body.errors).toEqual([
      {
        field,
        detail: refused.body.detail,
        value: 'nosuch',
        known: expect.arrayContaining([{ id: expect.stringContaining(known), name: expect.any(String) }]),
      },
    ]);
  });

  test.each([
    [undefined, ''],
    [{}, 'mode'],
    [{ mode: 'some' }, 'mode'],
    [{ mode: 'full', since: 'yesterday' }, 'since'],
    [{ mode: 'full', since: '2026-01-31' }, 'since'],
    [{ mode: 'full', since: -5 }, 'since'],
    [{ mode: 'full', companyId: '' }, 'companyId'],
    [{ mode: 'full', projectId: 'a\u0000' }, 'projectId'],
    [{ mode: 'full', assetType: '\ud800' }, 'assetType'],
    [{ mode: 'full', assetIds: [] }, 'assetIds'],
    [{ mode: 'full', assetIds: ['a', ''] }, 'assetIds.1'],
    [{ mode: 'full', assetIds: Array(1001).fill('a') }, 'assetIds'],
    [{ mode: 'full', speed: 'high' }, 'speed'],
  ])('a resync with %j is refused with the name of the field', async (body, field) => {
    expect(await resync(body)).toMatchObject(problem(400, 'invalid_request', expect.stringContaining(field)));
  });

  test('a resync of an ended connection is refused with advice to connect again', async () => {
    const other = await stage.company();
    await stage.store.connections.end(other.connectionId, 'as a test');
    const answer = await ask('POST', `/api/connections/${other.connectionId}/resync`, { body: '{"mode":"full"}' });
    expect(answer).toMatchObject(
      problem(409, 'connection_disconnected', expect.stringContaining('connect-link --connection')),
    );
  });
});

describe('the list of assets', () => {
  test('assets are listed in pages without gaps or repeats', async () => {
    const found: string[] = [];
    let path = `/api/assets?companyId=${companyId}&limit=10`;
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { status, body } = await ask('GET', cursor ? `${path}&cursor=${cursor}` : path);
      expect(status).toBe(200);
      expect(body.assets.length).toBeLessThanOrEqual(10);
      found.push(...body.assets.map((asset: { id: string }) => asset.id));
      cursor = body.nextCursor;
    }
    expect(found).toEqual(ids);
    path = `/api/assets?companyId=${companyId}&limit=25`;
    expect((await ask('GET', path)).body).toMatchObject({ nextCursor: null });
  });

  test.each([
    ['state=pending&type=documents', 25],
    ['state=failed', 0],
    ['type=videos', 0],
    ['q=file%201', 11],
    ['q=%25', 0],
    ['companyId=nobody', 0],
    ['projectId=nothing', 0],
    ['limit=250', 25],
    ['sort=-name', 25],
    ['tag=nothing', 0],
    ['tag=a&tag=b', 0],
    ['minSize=0&maxSize=1000000000', 25],
    ['minSize=1000000000', 0],
    ['mimeType=application/*', 25],
    ['mimeType=application/pdf', 0],
    ['uploadedFrom=1990-01-01', 25],
    ['uploadedBefore=1990-01-01T00:00:00%2B02:00', 0],
  ])('assets are searched by %s', async (query, count) => {
    expect((await ask('GET', `/api/assets?${query}`)).body.assets).toHaveLength(count);
  });

  test.each([
    ['limit=0', 'limit'],
    ['limit=251', 'limit'],
    ['limit=many', 'limit: expected a whole number from 1 to 250'],
    ['skipped=maybe', 'skipped: expected true or false'],
    ['limit=1.5', 'limit'],
    ['state=lost', 'state'],
    ['state=failed&state=gone', 'state'],
    ['q=', 'q'],
    ['q=%00', 'q'],
    ['companyId=a%00b', 'companyId'],
    ['sort=age', 'sort'],
    ['minSize=-1', 'minSize: expected a number of bytes'],
    ['maxSize=big', 'maxSize: expected a number of bytes'],
    ['uploadedFrom=yesterday', 'uploadedFrom: expected a date'],
    ['uploadedBefore=2026-02-31', 'uploadedBefore: expected a date'],
    ['tag=', 'tag'],
  ])('a search of assets by %s is refused with the name of the field', async (query, field) => {
    expect(await ask('GET', `/api/assets?${query}`)).toMatchObject(
      problem(400, 'invalid_request', expect.stringContaining(field)),
    );
  });

  test('assets are sorted, page by page, and a cursor fits only the order that it was made for', async () => {
    const names: string[] = [];
    let cursor: string | null = null;
    do {
      const { body } = await ask('GET', `/api/assets?sort=-name&limit=10${cursor ? `&cursor=${cursor}` : ''}`);
      names.push(...body.assets.map(({ name }: { name: string }) => name));
      cursor = body.nextCursor;
      if (cursor) {
        const other = await ask('GET', `/api/assets?sort=size&cursor=${cursor}`);
        expect(other).toMatchObject(problem(400, 'invalid_cursor', expect.stringContaining('sorted by -name')));
      }
    } while (cursor);
    expect(names).toHaveLength(25);
    expect(names).toEqual(names.toSorted().reverse());
  });

  test('the matching assets are counted by facet', async () => {
    const { status, body } = await ask('GET', `/api/asset-facets?companyId=${companyId}&q=file%201`);
    expect(status).toBe(200);
    expect(body).toMatchObject({ matching: 11, isComplete: true });
    expect(body.facets.type).toEqual([{ value: 'documents', name: null, count: 11 }]);
    expect(body.facets.companyId).toEqual([{ value: companyId, name: expect.any(String), count: 11 }]);
    const none = await ask('GET', '/api/asset-facets?connectionId=unknown');
    expect(none).toMatchObject(problem(404, 'connection_not_found', expect.any(String)));
  });

  test.each(['%00', 'AA', 'not a cursor!', '%F0%9F'])('an invalid cursor (%s) is refused', async (cursor) => {
    const answer = await ask('GET', `/api/assets?cursor=${cursor}`);
    expect(answer.status).toBe(400);
    expect(answer.body.code).toMatch(/^invalid_(cursor|request)$/);
  });
});

describe('readiness', () => {
  const ready = async (query = '') => {
    const response = await fetch(`${stage.ground.publicUrl}/readyz${query}`);
    return { status: response.status, body: (await response.json()) as { checks: Record<string, string> } };
  };

  test('/readyz fails while the bucket is away, except with ?without=bucket', { tags: 'slow' }, async () => {
    expect(await ready()).toEqual({
      status: 200,
      body: { status: 'ready', checks: { database: 'ok', queue: 'ok', bucket: 'ok' } },
    });
    const directory = `${stage.ground.environment.DATA_DIR}/mirror`;
    await rename(directory, `${directory}-away`);
    try {
      const away = await until('it to be seen', async () => {
        const answer = await ready();
        return answer.status === 503 && answer;
      });
      expect(away.body).toMatchObject({ status: 'not ready', checks: { database: 'ok', queue: 'ok' } });
      expect(away.body.checks.bucket).toMatch(/directory|mirror|ENOENT/);
      expect(await ready('?without=bucket')).toEqual({ status: 200, body: { ...away.body, status: 'ready' } });
      expect((await ready('?without=queue')).status).toBe(503);
      // Probes of web processes use ?without=bucket.
      expect((await ask('POST', '/api/connect-links', {})).status).toBe(201);
      expect((await ask('GET', '/api/status')).status).toBe(200);
    } finally {
      await rename(`${directory}-away`, directory);
    }
    await until('it to be back', async () => (await ready()).status === 200);
  });

  test('/readyz fails while the database is away, and /healthz does not', { tags: 'slow' }, async () => {
    const { pathname } = new URL(stage.ground.environment.DATABASE_URL!);
    const name = pathname.slice(1);
    const server = new pg.Client({ connectionString: inject('postgres') });
    await server.connect();
    try {
      await server.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
      await server.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1', [name]);
      // The queue has connections of its own, which may end a moment before those of the database.
      const away = await until('it to be seen', async () => {
        const answer = await ready();
        return answer.status === 503 && answer.body.checks.database !== 'ok' && answer;
      });
      expect(away.body.checks.database).toMatch(/not currently accepting connections|terminat/);
      expect((await fetch(`${stage.ground.publicUrl}/healthz`)).status).toBe(200);
      expect(await ask('GET', '/api/connections')).toMatchObject(problem(500, 'internal_error'));
    } finally {
      await server.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS true`);
      await server.end();
    }
    await until('it to be back', async () => (await ready()).status === 200);
    expect((await ask('GET', '/api/connections')).status).toBe(200);
  });
});

describe('the request id', () => {
  const path = '/api/connections/nobody';
  const askAs = (id: string | undefined, at = path, init: RequestInit = {}) =>
    fetch(stage.ground.publicUrl + at, {
      ...init,
      headers: {
        authorization: 'Bearer the-token-of-the-operators',
        ...(id !== undefined && { 'x-request-id': id }),
        ...init.headers,
      },
    });
  const linesOf = (id: string | null) => stage.mirror.lines.filter(({ requestId }) => requestId === id);
  const answered = (id: string | null) =>
    until('its line', () => linesOf(id).find(({ msg }) => msg === 'request answered'));

  test('the request id of the client is in the answer, the problem and the log', async () => {
    const answer = await askAs('proxy/7f3a:1');
    expect(answer.headers.get('x-request-id')).toBe('proxy/7f3a:1');
    expect(await answer.json()).toMatchObject({ code: 'connection_not_found', requestId: 'proxy/7f3a:1' });
    expect(await answered('proxy/7f3a:1')).toMatchObject({
      level: 'debug',
      method: 'GET',
      route: '/api/connections/:id',
      status: 404,
      operator: 'ADMIN_TOKEN',
      ms: expect.any(Number),
    });
  });

  test.each(['', 'two words', 'a'.repeat(129), '<script>', 'svca_abcdefghijklmnop', '{"a":1}', 'a?token=b'])(
    'the invalid request id %j is replaced by a new one',
    async (id) => {
      const given = (await askAs(id)).headers.get('x-request-id');
      expect(given).toMatch(/^[\da-f]{8}-[\da-f-]{27}$/);
      expect((await askAs(undefined)).headers.get('x-request-id')).not.toBe(given);
    },
  );

  test("the request id is in the answer of the event stream, and in the event of an operator's action", async () => {
    const stream = await askAs('follower', '/api/events', { headers: { accept: 'text/event-stream' } });
    expect(stream.headers.get('x-request-id')).toBe('follower');
    await stream.body!.cancel();
    const body = JSON.stringify({ connectionId: 'nobody' });
    const headers = { 'content-type': 'application/json' };
    await askAs('deed-1', '/api/connect-links', { method: 'POST', headers, body });
    const [deed] = (
      (await (
        await askAs(undefined, '/api/events?kind=operator.createConnectLink&limit=1', {
          headers: { accept: 'application/json' },
        })
      ).json()) as { events: { data: object }[] }
    ).events;
    expect(deed!.data).toMatchObject({ requestId: 'deed-1', code: 'connection_not_found' });
    expect(await answered('deed-1')).toMatchObject({ level: 'info', route: '/api/connect-links', status: 404 });
  });

  test('the request id is in each log line of the request, and no line has its address', async () => {
    // The body comes after the headers, in a packet of its own.
    const body = Readable.from(['token=wrong', '&to=/?secret=1']);
    const headers = { origin: stage.ground.publicUrl, 'content-type': 'application/x-www-form-urlencoded' };
    await askAs('form-1', '/sign-in?to=/secret', { method: 'POST', headers, body, duplex: 'half' } as never);
    expect(await answered('form-1')).toMatchObject({ route: '/sign-in', status: 401 });
    expect(linesOf('form-1').map(({ msg }) => msg)).toEqual(['sign-in refused', 'request answered']);
    await askAs('lost-1', '/secret?link=1');
    expect(await answered('lost-1')).toMatchObject({ route: null, status: 404 });
    expect(JSON.stringify([...linesOf('form-1'), ...linesOf('lost-1')])).not.toContain('secret');
  });
});

describe('settings', () => {
  const patch = (body: object) => ask('PATCH', '/api/settings', { body: JSON.stringify(body) });

  test('the bandwidth is that of the environment until it is set, and after it is removed', async () => {
    const own = { bandwidth: null, bandwidthTimetable: null, from: 'BANDWIDTH_LIMIT' };
    const set = { bandwidth: 20 * 2 ** 20, bandwidthTimetable: null, from: 'settings' };
    expect((await ask('GET', '/api/settings')).body).toEqual(own);
    for (const bandwidth of ['20MiB/s', 20 * 2 ** 20]) {
      expect((await patch({ bandwidth })).body).toEqual(set);
      expect((await ask('GET', '/api/settings')).body).toEqual(set);
      expect((await patch({ bandwidth: null })).body).toEqual(own);
    }
    const timetable = '00:00-24:00 20MiB/s, else unlimited Europe/Berlin';
    expect((await patch({ bandwidth: ` ${timetable}  ` })).body).toEqual({ ...set, bandwidthTimetable: timetable });
    for (const bandwidth of ['unlimited', 'off'])
      expect((await patch({ bandwidth })).body).toEqual({ ...set, bandwidth: null });
    expect((await patch({ bandwidth: null })).body).toEqual(own);
  });

  test.each([['20MiB'], ['fast'], [0], [-5], [1.5], ['0B/s'], [true]])(
    'a bandwidth of %j is refused',
    async (bandwidth) => {
      expect(await patch({ bandwidth })).toMatchObject(
        problem(400, 'invalid_request', expect.stringMatching(/^bandwidth: expected .*a rate such as 20MiB\/s/)),
      );
    },
  );
});

describe('an asset type that only the library knows', () => {
  test('a resync accepts an unknown asset type once an asset of it was seen', async () => {
    const other = await stage.company();
    await stage.upload(other.companyId, 1, { assetType: 'holograms' });
    await stage.run(other.connectionId);
    const body = JSON.stringify({ mode: 'full', assetType: 'holograms' });
    expect((await ask('POST', `/api/connections/${other.connectionId}/resync`, { body })).status).toBe(202);
    // Another connection may read the same company.
    expect((await ask('POST', `/api/connections/${connectionId}/resync`, { body })).status).toBe(202);
  });
});
