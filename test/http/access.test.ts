import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { hasRole, type Role, roles } from '../../src/floor/roles.ts';
import { leastRoles } from '../../src/operations/operators/permissions.ts';
import { startMirror } from '../support/mirror.ts';
import { freePort } from '../support/ports.ts';
import { newScene, type Scene } from '../support/scene.ts';

/** Waits and real work are not wanted here, only the answer to the question who may do what. */
let scene: Scene;
let api: string;
const adminToken = 'the-token-of-the-operators';
const tokens = { admin: adminToken } as Record<Role, string>;

async function ask(method: string, path: string, token: string, body?: unknown) {
  const answer = await fetch(api + path, {
    method,
    redirect: 'manual',
    headers: {
      authorization: `Bearer ${token}`,
      accept: 'application/json',
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  const json = answer.headers.get('content-type')?.includes('json');
  return { status: answer.status, body: json ? JSON.parse(text.split('\n')[0]!) : text };
}

beforeAll(async () => {
  scene = await newScene();
  api = `${scene.ground.publicUrl}/api`;
  for (const role of ['viewer', 'operator'] as const) {
    const { body } = await ask('POST', '/tokens', adminToken, { name: `a ${role}`, role });
    tokens[role] = body.token;
  }
});
afterAll(async () => {
  await scene?.close();
});

interface Operation {
  operationId: string;
  method: string;
  path: string;
}
async function operations(): Promise<Operation[]> {
  const { paths } = (await (await fetch(`${scene.ground.publicUrl}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, { operationId: string }>>;
  };
  return Object.entries(paths)
    .filter(([path]) => path.startsWith('/api/'))
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId }]) => ({
        operationId,
        method: method.toUpperCase(),
        path: path.slice('/api'.length).replace(/\{\w+\}/g, 'unknown'),
      })),
    );
}

describe('roles', () => {
  test('every route of the API has a row in the table of roles, and every row a route', async () => {
    const ids = (await operations()).map(({ operationId }) => operationId);
    expect([...ids, 'acceptHeldChanges'].toSorted()).toEqual(Object.keys(leastRoles).toSorted());
  });

  test.each(roles)('the role %s is refused exactly the operations above it', { tags: 'slow' }, async (role) => {
    const wrong: string[] = [];
    for (const { operationId, method, path } of await operations()) {
      // A stream does not end by itself.
      if (operationId === 'listEvents') continue;
      const body = method === 'POST' || method === 'PATCH' ? {} : undefined;
      // An admin would really rotate the keys; all others are refused, or find nothing.
      if (role === 'admin' && operationId === 'rotateKeys') continue;
      const answer = await ask(method, path, tokens[role], body);
      const least = leastRoles[operationId as keyof typeof leastRoles];
      const isAllowed = hasRole({ role }, least === 'media' ? 'operator' : least);
      const isRefused = answer.status === 403 && answer.body.code === 'role_too_low';
      if (isRefused === isAllowed) wrong.push(`${operationId}: ${answer.status} ${answer.body.code}`);
    }
    expect(wrong).toEqual([]);
  });

  test('a viewer sees files and spoken words only with VIEWER_MEDIA', async () => {
    const publicUrl = `http://127.0.0.1:${await freePort()}`;
    const { port } = new URL(publicUrl);
    const environment = { ...scene.ground.environment, PORT: port, PUBLIC_URL: publicUrl, VIEWER_MEDIA: 'true' };
    const other = await startMirror({ ...scene.ground, environment }, scene.library, 'web');
    onTestFinished(() => other.stop());
    const authorization = `Bearer ${tokens.viewer}`;
    for (const path of ['/assets/unknown/media', '/assets?said=hello']) {
      expect(await ask('GET', path, tokens.viewer)).toMatchObject({ status: 403, body: { code: 'role_too_low' } });
      const answer = await fetch(`${publicUrl}/api${path}`, { headers: { authorization } });
      expect((await answer.json()) as object).not.toMatchObject({ code: 'role_too_low' });
    }
  });

  test('limits of held changes are changed by an admin only', async () => {
    const path = `/connections/${scene.connectionId}`;
    for (const limit of ['holdMissing', 'holdReplaced']) {
      const change = { [limit]: '100%,1000000' };
      expect(await ask('PATCH', path, tokens.operator, change)).toMatchObject({ status: 403 });
      expect((await ask('PATCH', path, tokens.admin, { [limit]: null })).status).toBe(200);
    }
  });

  test('held changes are accepted by an admin only', async () => {
    const path = `/connections/${scene.connectionId}/resync`;
    const answer = await ask('POST', path, tokens.operator, { mode: 'full', acceptGone: true });
    expect(answer).toMatchObject({ status: 403, body: { code: 'role_too_low' } });
    expect(answer.body.detail).toBe(
      'This needs the role admin; a operator has the role operator. Ask someone with that role.',
    );
    expect((await ask('POST', path, tokens.operator, { mode: 'incremental' })).status).toBe(202);
    expect((await ask('POST', path, tokens.admin, { mode: 'full', acceptGone: true })).status).toBe(202);
  });

  test('an operator can see own permissions', async () => {
    const { body } = await ask('GET', '/me', tokens.operator);
    expect(body).toMatchObject({ name: 'a operator', role: 'operator', method: 'api_token', sessionId: null });
    expect(body.may).toContain('pauseConnection');
    expect(body.may).not.toContain('erase');
  });
});

describe('API tokens', () => {
  test('a token is shown once, and only its hash is stored', async () => {
    const { status, body } = await ask('POST', '/tokens', tokens.admin, {
      name: 'once',
      role: 'viewer',
      expiresInDays: 3,
    });
    expect(status).toBe(201);
    expect(body.token).toMatch(/^am_[0-9a-f]{48}$/);
    expect(Date.parse(body.expiresAt) - Date.now()).toBeGreaterThan(2.9 * 86_400_000);
    const { body: list } = await ask('GET', '/tokens', tokens.admin);
    const listed = list.tokens.find(({ name }: { name: string }) => name === 'once');
    expect(listed).toMatchObject({
      role: 'viewer',
      createdBy: 'ADMIN_TOKEN',
      lastUsedAt: null,
      beginning: body.token.slice(0, 9),
    });
    expect(JSON.stringify(list)).not.toContain(body.token);
    const rows = await scene.query('SELECT * FROM api_tokens');
    expect(JSON.stringify(rows)).not.toContain(body.token);
    const { entries } = await scene.mirror.service.operations.auditLog({ action: 'createToken', limit: 1 });
    expect(entries).toMatchObject([{ request: { name: 'once', role: 'viewer' }, outcome: 'done' }]);
    expect(JSON.stringify(entries)).not.toContain(body.token);
    await ask('GET', '/status', body.token);
    const [used] = await scene.query<{ last_used_at: Date }>("SELECT last_used_at FROM api_tokens WHERE name = 'once'");
    expect(used!.last_used_at).toBeInstanceOf(Date);
  });

  test('a name is used once, and no token is valid for longer than a year', async () => {
    const add = (request: object) => ask('POST', '/tokens', tokens.admin, request);
    expect(await add({ name: 'a viewer', role: 'viewer' })).toMatchObject({
      status: 409,
      body: { code: 'name_taken' },
    });
    expect(await add({ name: 'long', role: 'viewer', expiresInDays: 366 })).toMatchObject({ status: 400 });
    expect(await add({ name: 'root', role: 'root' })).toMatchObject({ status: 400 });
  });

  test('a revoked token and an expired one stop working at once', async () => {
    const { body } = await ask('POST', '/tokens', tokens.admin, { name: 'short', role: 'admin' });
    expect((await ask('GET', '/tokens', body.token)).status).toBe(200);
    await scene.query("UPDATE api_tokens SET expires_at = now() WHERE name = 'short'");
    expect(await ask('GET', '/tokens', body.token)).toMatchObject({ status: 401, body: { code: 'unauthorized' } });
    const { body: other } = await ask('POST', '/tokens', tokens.admin, { name: 'gone', role: 'admin' });
    expect(await ask('DELETE', '/tokens/gone', other.token)).toMatchObject({ status: 200, body: { name: 'gone' } });
    expect((await ask('GET', '/tokens', other.token)).status).toBe(401);
    expect((await ask('DELETE', '/tokens/gone', tokens.admin)).status).toBe(404);
  });

  test('a pasted token is revoked, and is in no answer, audit entry or event', async () => {
    const { body } = await ask('POST', '/tokens', tokens.admin, { name: 'pasted', role: 'admin' });
    const { token } = body;
    const revoke = () => ask('DELETE', `/tokens/${token}`, tokens.admin);
    expect(await revoke()).toMatchObject({ status: 200, body: { name: 'pasted' } });
    expect(await revoke()).toMatchObject({
      status: 404,
      body: { detail: 'There is no token am_…. List them with `asset-mirror tokens list`.' },
    });
    expect(await ask('POST', '/tokens', tokens.admin, { name: token, role: 'viewer' })).toMatchObject({ status: 400 });
    await fetch(`${api}/connections/x/pause`, {
      method: 'POST',
      headers: { authorization: `Bearer ${tokens.operator}`, 'x-request-id': token },
    });
    expect(JSON.stringify(await scene.query('SELECT * FROM events'))).not.toContain(token);
  });

  test('the stream of events of a revoked token ends', { tags: 'slow' }, async () => {
    const { body } = await ask('POST', '/tokens', tokens.admin, { name: 'streaming', role: 'viewer' });
    const stream = await fetch(`${api}/events`, { headers: { authorization: `Bearer ${body.token}` } });
    await ask('DELETE', '/tokens/streaming', tokens.admin);
    await expect(stream.text()).rejects.toThrow(/terminated/);
  });
});

describe('the audit log', () => {
  const last = async (action: string) =>
    (await scene.mirror.service.operations.auditLog({ action, limit: 1 })).entries[0];

  test('an entry of the audit log has who, from where, what, the values before and after, and the request id', async () => {
    const answer = await fetch(`${api}/connections/${scene.connectionId}`, {
      method: 'PATCH',
      headers: {
        authorization: `Bearer ${tokens.operator}`,
        'content-type': 'application/json',
        'x-request-id': 'change-1',
      },
      body: JSON.stringify({ syncInterval: 900_000 }),
    });
    expect(answer.status).toBe(200);
    expect(await last('changeConnection')).toMatchObject({
      by: { name: 'a operator', role: 'operator', method: 'api_token', subject: expect.stringMatching(/^token:/) },
      address: '127.0.0.1',
      connectionId: scene.connectionId,
      outcome: 'done',
      request: { syncInterval: 900_000 },
      before: { own: [] },
      after: { syncInterval: 900_000, own: ['syncInterval'] },
      requestId: 'change-1',
    });
  });

  test('no content of a request keeps a change out of the audit log, or brings a secret into it', async () => {
    const pause = `/connections/${scene.connectionId}/pause`;
    await ask('POST', pause, tokens.operator, {
      'a\u0000': ['b\u0000', '\ud800'],
      url: 'https://hooks.example.com/x?key=secret-1',
    });
    expect(await last('pauseConnection')).toMatchObject({
      outcome: 'done',
      request: { a: ['b', '\ufffd'], url: 'https://hooks.example.com/x?…' },
      after: { status: 'paused' },
    });
    await ask('POST', `/connections/${scene.connectionId}/resume`, tokens.operator);
    await ask('POST', '/webhooks', tokens.admin, { uri: 'https://hooks.example.com/secret-2', url: ['secret-3'] });
    expect(await last('addWebhook')).toMatchObject({ outcome: 'refused', code: 'invalid_request' });
    expect(JSON.stringify(await scene.query('SELECT * FROM events'))).not.toMatch(/secret-\d/);
    const projectIds = Array.from({ length: 900 }, (_, i) => `project ${i}`);
    const path = `/connections/${scene.connectionId}`;
    await ask('PATCH', path, tokens.admin, { include: { projectIds }, holdMissing: '60%,7', force: true });
    expect(await last('changeConnection')).toMatchObject({
      request: {
        include: { projectIds: expect.arrayContaining(['project 0', 'and 850 more']) },
        holdMissing: { percent: 60 },
      },
      after: { holdMissing: { percent: 60, assets: 7 } },
    });
  });

  test('a request from another site is in the audit log', async () => {
    const form = await fetch(`${scene.ground.publicUrl}/sign-in`, {
      method: 'POST',
      redirect: 'manual',
      headers: { origin: scene.ground.publicUrl },
      body: new URLSearchParams({ token: adminToken }),
    });
    const [cookie = ''] = form.headers.getSetCookie();
    await fetch(`${api}/keys/rotate`, {
      method: 'POST',
      headers: { cookie: cookie.split(';')[0]!, origin: 'https://evil.example' },
    });
    expect(await last('rotateKeys')).toMatchObject({
      outcome: 'refused',
      code: 'foreign_origin',
      by: { name: 'ADMIN_TOKEN' },
    });
  });

  test('refused attempts are in the audit log: with too low a role, also reads', async () => {
    await ask('POST', `/connections/${scene.connectionId}/disconnect`, tokens.operator);
    expect(await last('disconnectConnection')).toMatchObject({
      by: { name: 'a operator' },
      outcome: 'refused',
      status: 403,
      code: 'role_too_low',
      reason: 'This needs the role admin; a operator has the role operator. Ask someone with that role.',
    });
    await ask('GET', '/assets/some/media', tokens.viewer);
    expect(await last('getMedia')).toMatchObject({ by: { name: 'a viewer' }, outcome: 'refused', assetId: 'some' });
  });

  test('the audit log is searched by person, action, outcome and time, in pages', async () => {
    const audit = async (query: string) => (await ask('GET', `/audit?${query}`, tokens.admin)).body;
    const refused = await audit('outcome=refused&limit=250');
    expect(refused.entries.length).toBeGreaterThan(1);
    expect(new Set(refused.entries.map(({ outcome }: { outcome: string }) => outcome))).toEqual(new Set(['refused']));
    const byName = await audit('q=A%20VIEWER&limit=250');
    expect(byName.entries.map(({ by }: { by: { name: string } }) => by.name)).toContain('a viewer');
    expect(byName.entries.length).toBeLessThan((await audit('limit=250')).entries.length);
    expect((await audit(`q=${scene.connectionId}`)).entries.length).toBeGreaterThan(0);
    expect((await audit('q=%25')).entries).toEqual([]);
    expect((await audit('until=2020-01-01')).entries).toEqual([]);
    const { entries, nextCursor } = await audit('limit=2');
    const next = await audit(`limit=2&cursor=${nextCursor}`);
    expect(next.entries[0].id).toBeLessThan(entries[1].id);
  });

  test('events show everyone who did what, without addresses and values', async () => {
    const { body } = await ask('GET', '/events?kind=operator.changeConnection&limit=250', tokens.viewer);
    const [data] = body.events
      .map((event: { data: { requestId: string } }) => event.data)
      .filter(({ requestId }: { requestId: string }) => requestId === 'change-1');
    expect(data).toEqual({
      by: 'a operator',
      outcome: 'done',
      requestId: 'change-1',
    });
  });
});
