import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '../../src/floor/log.ts';
import { openDatabase } from '../../src/library/database/postgres.ts';
import { startLibrary } from '../../src/library/index.ts';
import { openDatabase as openMirrorDatabase } from '../../src/store/database/database.ts';
import { newDatabase } from '../support/database.ts';
import {
  authorizeUrl,
  connect,
  type DetailedAsset,
  type Library,
  pkce,
  postToken,
  REDIRECT_URI,
  type TokenAnswer,
} from '../support/library.ts';
import { type LibraryProcess, spawnLibrary } from '../support/library-process.ts';
import { until } from '../support/until.ts';

let database: Awaited<ReturnType<typeof newDatabase>>;
beforeAll(async () => {
  database = await newDatabase({ empty: true });
});
afterAll(() => database.drop());

async function query<Row>(sql: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    return (await client.query(sql)).rows as Row[];
  } finally {
    await client.end();
  }
}

function me(library: Library, { access_token: token }: TokenAnswer): Promise<Response> {
  return fetch(`${library.apiUrl}/api/v1/me`, { headers: { authorization: `Bearer ${token}` } });
}

async function refresh(library: Library, { refresh_token }: TokenAnswer): Promise<TokenAnswer & { error?: string }> {
  const answer = await postToken(library, { grant_type: 'refresh_token', refresh_token });
  return (await answer.json()) as TokenAnswer;
}

describe('persistence', () => {
  let running: LibraryProcess;
  let library: Library;
  const secrets: string[] = [];

  async function restart(...options: string[]): Promise<Library> {
    const { clientSecret } = library;
    await running.kill();
    running = await spawnLibrary(database.url, '--synthetic', '1000', ...options);
    library = { ...running.library, clientSecret: running.clientSecret ?? clientSecret };
    return library;
  }

  beforeAll(async () => {
    running = await spawnLibrary(database.url, '--synthetic', '1000');
    library = running.library;
    secrets.push(library.clientSecret);
  });
  afterAll(() => running.stop());

  it('after a restart, the secret of the app still works and is not shown again', { tags: 'slow' }, async () => {
    const before = library;
    const tokens = await connect(before);
    secrets.push(tokens.access_token, tokens.refresh_token);
    const after = await restart();
    expect(running.clientSecret).toBeNull();
    expect(after.clientId).toBe(before.clientId);
    expect((await me(after, tokens)).status).toBe(200);
    expect(await refresh(after, tokens)).toHaveProperty('access_token');
    expect(after.users).toEqual(before.users);
  });

  it('after a restart, issued tokens work and replaced ones do not', { tags: 'slow' }, async () => {
    const first = await connect(library);
    const second = await refresh(library, first);
    const after = await restart();
    expect(await refresh(after, first)).toMatchObject({ error: 'invalid_grant' });
    expect((await me(after, second)).status).toBe(200);
    expect(await refresh(after, second)).toHaveProperty('refresh_token');
  });

  it('ended connections, revoked access and removed users survive a restart', { tags: 'slow' }, async () => {
    const { admin } = running;
    await admin.addUser({ id: 'bea', name: 'Bea', email: 'bea@example.com' });
    await admin.addCompany({ id: 'two', name: 'Two', userIds: ['bea', 'usr_ada'] });
    const revoked = await connect(library);
    const body = new URLSearchParams({ token: revoked.refresh_token });
    const authorization = `Basic ${Buffer.from(`${library.clientId}:${library.clientSecret}`).toString('base64')}`;
    await fetch(`${library.apiUrl}/api/oauth/revoke`, { method: 'POST', headers: { authorization }, body });
    const kept = await connect(library);
    await admin.setAccess('cmp_synthetic_1', 'usr_ada', false);
    const removed = await connect(library, 'bea');
    await admin.removeUser('bea');

    const after = await restart();
    expect((await me(after, revoked)).status).toBe(401);
    expect(await refresh(after, revoked)).toMatchObject({ error: 'invalid_grant' });
    expect((await me(after, removed)).status).toBe(401);
    const { companies } = (await (await me(after, kept)).json()) as { companies: { id: string }[] };
    expect(companies.map(({ id }) => id)).toEqual(['two']);
    expect((await running.admin.users()).map(({ id }) => id)).toEqual(['usr_ada']);
    await running.admin.setAccess('cmp_synthetic_1', 'usr_ada', true);
  });

  it('codes and links of an earlier start work after a restart, and the assets are the same', {
    tags: 'slow',
  }, async () => {
    const { verifier, challenge } = pkce();
    const consent = await fetch(authorizeUrl(library, { code_challenge: challenge }), { redirect: 'manual' });
    const code = new URL(consent.headers.get('location')!).searchParams.get('code')!;
    const tokens = await connect(library);
    const headers = { authorization: `Bearer ${tokens.access_token}` };
    const read = async (apiUrl: string) =>
      ((await (await fetch(`${apiUrl}/api/v1/assets/ast_1_7`, { headers })).json()) as { asset: DetailedAsset }).asset;
    const before = await read(library.apiUrl);

    const after = await restart();
    const fields = { redirect_uri: REDIRECT_URI, code_verifier: verifier };
    expect((await postToken(after, { grant_type: 'authorization_code', code, ...fields })).status).toBe(200);
    const { thumbnailUrl: _, download: __, ...asset } = await read(after.apiUrl);
    expect(before).toMatchObject(asset);
    const { pathname, search } = new URL(before.download.url);
    const range = 'bytes=0-99';
    const link = await fetch(after.apiUrl + pathname + search, { headers: { referer: after.appUrl, range } });
    expect(link.status).toBe(206);
  });

  it('a rotated secret and a changed registration survive a restart', { tags: 'slow' }, async () => {
    const { clientId, clientSecret } = await restart('--rotate-secret', '--app-name', 'Another name');
    expect(clientSecret).toMatch(/^svcs_/);
    expect(clientSecret).not.toBe(secrets[0]);
    const logoUrl = 'https://app.example/logo.svg';
    await running.admin.changeApp(clientId, { logoUrl });
    await running.admin.changeApp(clientId, { redirectUris: [REDIRECT_URI, 'https://app.example/callback'] });
    const other = await running.admin.addApp({
      name: 'Other',
      websiteUrl: 'https://o.example',
      redirectUris: [REDIRECT_URI],
    });
    const tokens = await connect(library);

    const after = await restart();
    const apps = await running.admin.apps();
    const name = 'Another name';
    expect(apps.find((app) => app.clientId === clientId)).toMatchObject({
      name,
      logoUrl,
      redirectUris: [REDIRECT_URI],
    });
    expect(apps.map((app) => app.clientId)).toContain(other.clientId);
    expect(await refresh({ ...after, clientSecret: secrets[0]! }, tokens)).toMatchObject({ error: 'invalid_client' });
    expect(await refresh(after, tokens)).toHaveProperty('access_token');
  });

  it('the database contains no secret in plain text, and nothing outside the schema library', async () => {
    const tables = await query<{ table_schema: string; table_name: string }>(
      `SELECT table_schema, table_name FROM information_schema.tables
       WHERE table_schema NOT IN ('pg_catalog', 'information_schema')`,
    );
    expect(new Set(tables.map(({ table_schema }) => table_schema))).toEqual(new Set(['library']));
    for (const { table_name } of tables) {
      const rows = JSON.stringify(await query(`SELECT * FROM library.${table_name}`));
      for (const secret of secrets) expect(rows.includes(secret), table_name).toBe(false);
    }
  });

  it('library and mirror can share a database', { tags: 'slow' }, async () => {
    const mirror = await openMirrorDatabase({ url: database.url, log: createLog({ level: 'silent', pretty: false }) });
    await mirror.destroy();
    await restart();
    expect(await query('SELECT * FROM public.connections')).toEqual([]);
  });

  it('a second library on the same database does not start', { tags: 'slow' }, async () => {
    await expect(spawnLibrary(database.url)).rejects.toThrow('in use by another library');
  });
});

describe('an unavailable database', () => {
  const options = { redirectUris: [REDIRECT_URI], autoConsent: true, adminPort: 0 };
  let other: Awaited<ReturnType<typeof newDatabase>>;
  let close: () => Promise<void>;
  afterEach(async () => {
    await close();
    await other.drop();
  });

  it('while the database does not answer, changes get 503 and reads continue; afterwards both work', async () => {
    other = await newDatabase({ empty: true });
    const errors: object[] = [];
    const started = await startLibrary({ ...options, databaseUrl: other.url, log: (line) => errors.push(line) });
    close = started.close;
    const library = started as Library;
    const tokens = await connect(library);

    const client = new pg.Client({ connectionString: other.url });
    await client.connect();
    await client.query('ALTER TABLE library.rows RENAME TO away');
    const answer = await postToken(library, { grant_type: 'refresh_token', refresh_token: tokens.refresh_token });
    expect(answer.status).toBe(503);
    expect(answer.headers.get('retry-after')).toBe('1');
    expect((await me(library, tokens)).status).toBe(200);
    await client.query('ALTER TABLE library.away RENAME TO rows');
    await client.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'asset-library' AND datname = current_database()`,
    );
    await client.end();

    // The pool may notice the lost connection only with the next statement, which then gets 503.
    const next = await until('the database to be back', async () => {
      const answer = await refresh(library, tokens);
      return answer.refresh_token !== undefined && answer;
    });
    expect(JSON.stringify(errors)).not.toContain(tokens.refresh_token);
    expect(await refresh(library, next)).toHaveProperty('refresh_token');
  });

  it('the library does not start without its database', async () => {
    other = await newDatabase({ empty: true });
    close = async () => {};
    await expect(openDatabase('postgres://nobody:x@127.0.0.1:1/none', () => {})).rejects.toThrow();
  });
});
