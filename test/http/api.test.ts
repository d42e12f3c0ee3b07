import { connect } from 'node:net';
import { text as toText } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { byOperator } from '../support/reasons.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';
import { asking, problem } from './asking.ts';

let stage: Stage;
let connectionId: string;
let companyId: string;
beforeAll(async () => {
  stage = await newStage();
  ({ connectionId, companyId } = await stage.company());
  await stage.upload(companyId, 25);
  await stage.run(connectionId);
});
afterAll(async () => {
  await stage?.close();
});

const ask = asking(() => stage);

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
    await stage.store.connections.end(other.connectionId, byOperator);
    const answer = await ask('POST', `/api/connections/${other.connectionId}/resync`, { body: '{"mode":"full"}' });
    expect(answer).toMatchObject(
      problem(409, 'connection_disconnected', expect.stringContaining('connect-link --connection')),
    );
  });
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
