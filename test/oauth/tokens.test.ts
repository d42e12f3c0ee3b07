import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { Writable } from 'node:stream';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it, vi } from 'vitest';
import { Disconnected, RetryLater, reasonOf } from '../../src/floor/errors.ts';
import { createLog } from '../../src/floor/log.ts';
import { OAuthClient, Unanswered } from '../../src/oauth/client.ts';
import { createSealer } from '../../src/oauth/seal.ts';
import { Tokens, type TokensOptions } from '../../src/oauth/tokens.ts';
import { createAccess } from '../../src/pacing/with-token.ts';
import { LibraryClient } from '../../src/source/client.ts';
import { createAgent } from '../../src/source/http.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { newDatabase } from '../support/database.ts';
import { type Admin, connect, type Library, postToken, startTestLibrary } from '../support/library.ts';
import { until } from '../support/until.ts';
import type { Order } from './refresher.ts';
import { latch, type Relay, startRelay } from './relay.ts';

const key = randomBytes(32);
const sealer = createSealer([key]);
const lost = /the answer to an earlier token refresh was lost/;

let library: Library;
let admin: Admin;
let relay: Relay;
let database: { url: string; drop(): Promise<void> };
let store: Store;
/** A connection to the test's database, and one to the server itself. */
let sql: pg.Client;
let server: pg.Client;
let lines: { msg: string; level: string; connectionId?: string; reason?: string }[] = [];
const children: ChildProcess[] = [];

const log = createLog({
  level: 'debug',
  pretty: false,
  destination: new Writable({
    write(chunk, _encoding, done) {
      lines.push(
        ...String(chunk)
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line)),
      );
      done();
    },
  }),
});

beforeAll(async () => {
  ({ library, admin } = await startTestLibrary());
  relay = await startRelay(library.apiUrl);
  database = await newDatabase();
  store = await openStore({ url: database.url, log });
  sql = new pg.Client({ connectionString: database.url });
  server = new pg.Client({ connectionString: inject('postgres') });
  await Promise.all([sql.connect(), server.connect()]);
});
beforeEach(() => {
  lines = [];
});
afterEach(async () => {
  relay.reset();
  await admin.clearFaults();
  for (const child of children.splice(0)) child.kill('SIGKILL');
});
afterAll(async () => {
  await Promise.all([sql.end(), server.end()]);
  await store.close();
  await database.drop();
  await relay.close();
  await library.close();
});

type Options = Partial<TokensOptions> & { apiUrl?: string; timeoutMs?: number };

/** The tokens as one process has them. */
function tokensOf(options: Options = {}) {
  const { apiUrl = relay.url, timeoutMs = 60_000 } = options;
  const client = new OAuthClient({ ...library, apiUrl, timeoutMs });
  return new Tokens({ store, client, sealer, log, instance: 'this process', ...options });
}

const seal = (userId: string, grant: { access_token: string; refresh_token: string }) =>
  tokensOf().seal(userId, { accessToken: grant.access_token, refreshToken: grant.refresh_token });

/** A connection whose access token has expired, as it was saved by the connect flow. */
async function newConnection(accessExpiresAt = new Date(Date.now() - 1000)) {
  const user = { id: `user ${randomUUID()}`, name: 'Ada', email: 'ada@example.com' };
  const grant = await connect(library);
  const { id } = await store.connections.connect({ user, tokens: seal(user.id, grant), accessExpiresAt });
  return { id, user, grant };
}

/** The user connects again. */
async function reconnect(connection: { user: { id: string; name: string; email: string } }) {
  const grant = await connect(library);
  await store.connections.connect({
    user: connection.user,
    tokens: seal(connection.user.id, grant),
    accessExpiresAt: new Date(Date.now() + 3_600_000),
  });
  return grant;
}

const name = () => new URL(database.url).pathname.slice(1);

/** The pair in the records. */
async function saved(id: string) {
  const connection = (await store.connections.get(id))!;
  const pair = connection.tokens
    ? JSON.parse(sealer.open(`tokens of ${connection.userId}`, connection.tokens))
    : undefined;
  return { ...connection, pair };
}

async function eventsOf(id: string): Promise<{ kind: string; data: { reason?: string } }[]> {
  return (await sql.query('SELECT kind, data FROM events WHERE connection_id = $1 ORDER BY id', [id])).rows;
}

const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    (value) => {
      throw new Error(`it was no failure: ${JSON.stringify(value)}`);
    },
    (error) => error,
  );
const refreshes = () => relay.requests.filter(({ body }) => body.includes('grant_type=refresh_token')).length;
const works = async (accessToken: string) =>
  (await fetch(`${library.apiUrl}/api/v1/me`, { headers: { authorization: `Bearer ${accessToken}` } })).status === 200;

async function expectStillConnected(id: string) {
  expect(await saved(id)).toMatchObject({ status: 'active', pair: { refreshToken: expect.stringMatching(/^svcr_/) } });
  expect((await eventsOf(id)).map(({ kind }) => kind)).not.toContain('connection.disconnected');
  expect(lines.filter(({ msg }) => msg === 'connection disconnected')).toEqual([]);
}

/** Status, one event and one log line, all with the same reason. */
async function expectDisconnected(id: string, reason: RegExp) {
  const connection = await saved(id);
  expect(connection).toMatchObject({ status: 'disconnected', tokens: null, refreshOwner: null });
  expect(connection.lastError).toMatch(reason);
  const ends = (await eventsOf(id)).filter(({ kind }) => kind === 'connection.disconnected');
  expect(ends).toEqual([{ kind: 'connection.disconnected', data: { reason: connection.lastError } }]);
  const found = lines.filter(({ msg, connectionId }) => msg === 'connection disconnected' && connectionId === id);
  expect(found).toMatchObject([{ level: 'warn', reason: connection.lastError }]);
}

/** A process of its own that asks for the same token. */
async function startProcess(connectionId: string, options: Partial<Order> = {}) {
  const order: Order = {
    databaseUrl: database.url,
    apiUrl: relay.url,
    clientId: library.clientId,
    clientSecret: library.clientSecret,
    key: key.toString('base64'),
    connectionId,
    callers: 1,
    leaseMs: 45_000,
    ...options,
  };
  const script = new URL('refresher.ts', import.meta.url).pathname;
  const child = spawn(process.execPath, [script, JSON.stringify(order)], { stdio: ['pipe', 'pipe', 'pipe'] });
  children.push(child);
  let output = '';
  let errors = '';
  child.stdout.on('data', (chunk) => {
    output += chunk;
  });
  child.stderr.on('data', (chunk) => {
    errors += chunk;
  });
  const line = (number: number) =>
    until(`line ${number} of a process (${errors})`, () => {
      if (child.exitCode !== null && output.split('\n').length <= number + 1) throw new Error(`it died: ${errors}`);
      return output.split('\n').length > number + 1 && output.split('\n')[number]!;
    });
  await line(0);
  return {
    go: () => child.stdin.write('go\n'),
    calling: () => line(1),
    results: async () => JSON.parse(await line(2)) as string[],
    logLines: () =>
      errors
        .split('\n')
        .filter((text) => text.startsWith('{'))
        .map((text) => JSON.parse(text) as { msg: string }),
    freeze: () => child.kill('SIGSTOP'),
    thaw: () => child.kill('SIGCONT'),
    async kill() {
      child.kill('SIGKILL');
      await until('the end of the process', () => child.signalCode !== null);
    },
  };
}

describe('an access token', () => {
  it('an access token that has not expired is returned without a request to the library', async () => {
    const connection = await newConnection(new Date(Date.now() + 60_000));
    expect(await tokensOf().getAccessToken(connection.id)).toEqual({
      value: connection.grant.access_token,
      version: 1,
    });
    expect(refreshes()).toBe(0);
  });

  it('an access token that has expired is refreshed, and the new pair is saved before it is used', async () => {
    const connection = await newConnection();
    const token = await tokensOf().getAccessToken(connection.id);
    expect(token).toEqual({ value: expect.stringMatching(/^svca_/), version: 2 });
    expect(await works(token.value)).toBe(true);
    const record = await saved(connection.id);
    expect(record).toMatchObject({
      tokenVersion: 2,
      refreshOwner: null,
      refreshUntil: null,
      refreshUnansweredAt: null,
    });
    expect(record.pair.accessToken).toBe(token.value);
    expect(record.pair.refreshToken).not.toBe(connection.grant.refresh_token);
    expect(record.accessExpiresAt!.getTime()).toBeGreaterThan(Date.now() + 3_500_000);
  });

  it('an access token and its refresh token are encrypted in the database', async () => {
    const connection = await newConnection();
    const { value } = await tokensOf().getAccessToken(connection.id);
    const { rows } = await sql.query('SELECT c::text FROM connections c WHERE id = $1', [connection.id]);
    const { pair } = await saved(connection.id);
    for (const secret of [value, pair.refreshToken, 'svca_', 'svcr_']) expect(rows[0].c).not.toContain(secret);
  });

  it('an access token that lives two seconds is used, and refreshed after that', async () => {
    const connection = await newConnection();
    let count = 0;
    relay.instead = (response) =>
      response.end(JSON.stringify({ access_token: `svca_${++count}`, expires_in: 2, refresh_token: `svcr_${count}` }));
    const tokens = tokensOf();
    const began = Date.now();
    expect((await tokens.getAccessToken(connection.id)).value).toBe('svca_1');
    expect((await saved(connection.id)).accessExpiresAt!.getTime()).toBeGreaterThan(began + 1000);
    await until('its end', async () => (await saved(connection.id)).accessExpiresAt!.getTime() < Date.now());
    expect((await tokens.getAccessToken(connection.id)).value).toBe('svca_2');
  });

  it('an access token expires by the clock of the database, not by those of processes', async () => {
    const connection = await newConnection();
    relay.instead = (response) =>
      response.end(JSON.stringify({ access_token: 'svca_1', expires_in: 300, refresh_token: 'svcr_1' }));
    const asProcess = async (ms: number) => {
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms });
      return tokensOf()
        .getAccessToken(connection.id)
        .finally(() => vi.useRealTimers());
    };
    expect(await asProcess(-600_000)).toMatchObject({ version: 2 });
    expect(await asProcess(600_000)).toMatchObject({ version: 2 });
    await sql.query('UPDATE connections SET access_expires_at = now() WHERE id = $1', [connection.id]);
    expect(await asProcess(-600_000)).toMatchObject({ version: 3 });
  });

  it('an access token can come without a new refresh token: the old one stays', async () => {
    const connection = await newConnection();
    relay.instead = (response) => response.end(JSON.stringify({ access_token: 'svca_x', expires_in: 3600 }));
    await tokensOf().getAccessToken(connection.id);
    expect((await saved(connection.id)).pair).toEqual({
      accessToken: 'svca_x',
      refreshToken: connection.grant.refresh_token,
    });
  });

  it('an access token whose encryption key is missing does not end the connection', async () => {
    const connection = await newConnection();
    const error = await failureOf(tokensOf({ sealer: createSealer([randomBytes(32)]) }).getAccessToken(connection.id));
    expect(error).not.toBeInstanceOf(Disconnected);
    expect(error.message).toContain('ENCRYPTION_KEYS');
    await expectStillConnected(connection.id);
  });

  it('an access token of a connection that is unknown or has ended is refused', async () => {
    expect(await failureOf(tokensOf().getAccessToken('nobody'))).toBeInstanceOf(Disconnected);
  });
});

describe('concurrent callers', () => {
  it('concurrent callers in three processes cause exactly one refresh, and all get the same token', {
    tags: 'slow',
  }, async () => {
    const connection = await newConnection();
    const held = latch();
    relay.before = held.pass;
    const processes = await Promise.all([33, 33, 34].map((callers) => startProcess(connection.id, { callers })));
    for (const each of processes) each.go();
    // The refresh is delayed until all others wait for it.
    await Promise.all([held.reached, ...processes.map((each) => each.calling())]);
    held.open();
    const results = (await Promise.all(processes.map((each) => each.results()))).flat();
    expect(results).toHaveLength(100);
    const record = await saved(connection.id);
    expect(new Set(results)).toEqual(new Set([`2 ${record.pair.accessToken}`]));
    expect(refreshes()).toBe(1);
    expect(await works(record.pair.accessToken)).toBe(true);
  });

  it('concurrent callers in three processes learn of a disconnect by one refresh, one event and one log line', {
    tags: 'slow',
  }, async () => {
    const connection = await newConnection();
    await admin.endConnections();
    const held = latch();
    relay.before = held.pass;
    const processes = await Promise.all([33, 33, 34].map((callers) => startProcess(connection.id, { callers })));
    for (const each of processes) each.go();
    await Promise.all([held.reached, ...processes.map((each) => each.calling())]);
    held.open();
    const results = (await Promise.all(processes.map((each) => each.results()))).flat();
    expect(results).toEqual(Array(100).fill('Disconnected'));
    expect(refreshes()).toBe(1);
    const found = processes.flatMap((each) => each.logLines()).filter(({ msg }) => msg === 'connection disconnected');
    lines.push(...(found as typeof lines));
    await expectDisconnected(connection.id, /^the user disconnected the app or lost access/);
  });

  it('concurrent callers that were refused with an unexpired token cause one refresh', async () => {
    const connection = await newConnection(new Date(Date.now() + 60_000));
    const tokens = tokensOf();
    const { version } = await tokens.getAccessToken(connection.id);
    const next = await Promise.all(Array.from({ length: 50 }, () => tokens.getAccessToken(connection.id, version)));
    expect(new Set(next.map((token) => token.version))).toEqual(new Set([2]));
    // Later callers were refused with the same token.
    expect(await tokens.getAccessToken(connection.id, version)).toEqual(next[0]);
    expect(refreshes()).toBe(1);
  });

  it('concurrent callers whose requests get 401 send them once more, with the next token', async () => {
    const connection = await newConnection(new Date(Date.now() + 60_000));
    const agent = createAgent({ connections: 10 });
    const client = new LibraryClient({ apiUrl: library.apiUrl, dispatcher: agent });
    const withToken = createAccess(tokensOf());
    const signal = AbortSignal.timeout(20_000);
    await admin.expireTokens();
    await admin.clearRequests();
    const all = Array.from({ length: 20 }, () => withToken(connection.id, (token) => client.me({ token, signal })));
    for (const me of await Promise.all(all)) expect(me.user.id).toBe('usr_ada');
    expect(refreshes()).toBe(1);
    expect((await admin.requests({ endpoint: 'me', status: 401 })).length).toBeLessThanOrEqual(20);
    expect(await admin.requests({ endpoint: 'me', status: 200 })).toHaveLength(20);
    await agent.destroy();
  });

  it('a stop waits for the refresh that is under way, however many callers wait for it', async () => {
    const connection = await newConnection(new Date(Date.now() + 60_000));
    let reads = 0;
    const storedTokens: Store['connections']['storedTokens'] = (id) => {
      reads++;
      return store.connections.storedTokens(id);
    };
    const tokens = tokensOf({ store: { ...store, connections: { ...store.connections, storedTokens } } });
    const held = latch();
    relay.after = held.pass;
    // These arrive while the first one reads: all are refused for the same reason.
    const calls = [tokens.getAccessToken(connection.id)];
    for (let i = 0; i < 50; i++) calls.push(tokens.getAccessToken(connection.id, 1));
    await held.reached;
    let settled = false;
    const settling = tokens.settled().then(() => {
      settled = true;
    });
    expect(await saved(connection.id)).toMatchObject({ tokenVersion: 1 });
    expect(settled).toBe(false);
    held.open();
    await settling;
    expect(await saved(connection.id)).toMatchObject({ tokenVersion: 2 });
    await Promise.all(calls);
    expect(refreshes()).toBe(1);
    // They wait for one another, and do not overload the database.
    expect(reads).toBe(2);
  });
});

describe('saving a new token pair', () => {
  /** The store, with a look at each try to save. */
  function watchedStore(onSave?: (save: () => Promise<boolean>) => Promise<boolean>) {
    const watched = { tries: 0, store };
    watched.store = {
      ...store,
      connections: {
        ...store.connections,
        saveRefreshed: (...args) => {
          watched.tries++;
          const save = () => store.connections.saveRefreshed(...args);
          return onSave ? onSave(save) : save();
        },
      },
    };
    return watched;
  }

  /** Refreshes with something happening between the library's answer and its being saved. */
  async function refreshWhile(id: string, tokens: ReturnType<typeof tokensOf>, meanwhile: () => Promise<void>) {
    const held = latch();
    relay.after = held.pass;
    let given = false;
    const call = tokens.getAccessToken(id).finally(() => {
      given = true;
    });
    call.catch(() => {});
    await held.reached;
    await meanwhile();
    held.open();
    return { call, given: () => given };
  }

  async function expectSaved(id: string, call: Promise<{ value: string; version: number }>) {
    const token = await call;
    expect(token.version).toBe(2);
    expect(await saved(id)).toMatchObject({ tokenVersion: 2, status: 'active', pair: { accessToken: token.value } });
    expect(await works(token.value)).toBe(true);
    expect(refreshes()).toBe(1);
    await expectStillConnected(id);
  }

  it('a new token pair is saved after a database refused connections for some time', { tags: 'slow' }, async () => {
    const connection = await newConnection();
    const watched = watchedStore();
    const ours = (await sql.query('SELECT pg_backend_pid() AS pid')).rows[0].pid;
    const { call, given } = await refreshWhile(connection.id, tokensOf({ store: watched.store }), async () => {
      await server.query(`ALTER DATABASE ${name()} ALLOW_CONNECTIONS false`);
      await server.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = '${name()}' AND pid <> ${ours}`);
    });
    try {
      await until('some tries to save', () => watched.tries >= 4);
      // Other processes get the error of the database, which does not end the connection.
      expect(await failureOf(tokensOf().getAccessToken(connection.id))).not.toBeInstanceOf(Disconnected);
      expect(given()).toBe(false);
    } finally {
      await server.query(`ALTER DATABASE ${name()} ALLOW_CONNECTIONS true`);
    }
    await expectSaved(connection.id, call);
    expect(lines.filter(({ msg }) => msg === 'rotated token not saved, will retry')).toHaveLength(1);
  });

  it('a new token pair is saved although its table is locked and the connection is then cut', async () => {
    const connection = await newConnection();
    const waiting = async () =>
      (
        await server.query(`SELECT pid FROM pg_stat_activity
          WHERE datname = '${name()}' AND wait_event_type = 'Lock' AND query ILIKE 'update "connections"%'`)
      ).rows[0]?.pid as number | undefined;
    const { call, given } = await refreshWhile(connection.id, tokensOf(), async () => {
      await sql.query('BEGIN');
      await sql.query('LOCK TABLE connections IN ACCESS EXCLUSIVE MODE');
    });
    try {
      const first = await until('the save to wait', waiting);
      await server.query('SELECT pg_terminate_backend($1)', [first]);
      await until('another try', async () => {
        const pid = await waiting();
        return pid !== undefined && pid !== first;
      });
      expect(given()).toBe(false);
    } finally {
      await sql.query('COMMIT');
    }
    await expectSaved(connection.id, call);
  });

  it('a new token pair is saved although the answer to the save is lost', async () => {
    const connection = await newConnection();
    const once = watchedStore(async (save) => {
      const done = await save();
      if (once.tries === 1) throw new Error('Connection terminated unexpectedly');
      return done;
    });
    const { call } = await refreshWhile(connection.id, tokensOf({ store: once.store }), async () => {});
    await expectSaved(connection.id, call);
    expect(once.tries).toBe(2);
  });
});

describe('errors that do not end a connection', () => {
  const answer =
    (status: number, body = '', headers: Record<string, string> = {}): Relay['instead'] =>
    (response) =>
      response.writeHead(status, headers).end(body);
  const cases: [string, Options, Relay['instead']][] = [
    ['a library that does not listen', { apiUrl: 'http://127.0.0.1:9' }, undefined],
    ['a dropped connection', {}, (response) => response.socket?.destroy()],
    ['no answer in time', { timeoutMs: 200 }, () => {}],
    ['500', {}, answer(500)],
    ['500 and invalid_grant', {}, answer(500, '{"error":"invalid_grant"}')],
    ['503', {}, answer(503, '', { 'retry-after': '1' })],
    ['429', {}, answer(429, '', { 'retry-after': '1' })],
    ['a page in HTML', {}, answer(200, '<html>')],
    ['401 invalid_client', {}, answer(401, '{"error":"invalid_client"}')],
    ['400 invalid_request', {}, answer(400, '{"error":"invalid_request"}')],
  ];
  for (const [what, options, instead] of cases) {
    it(`a refresh that fails with ${what} does not end the connection`, { tags: 'slow' }, async () => {
      const connection = await newConnection();
      relay.instead = instead;
      const errors = await Promise.all(
        Array.from({ length: 10 }, () => failureOf(tokensOf(options).getAccessToken(connection.id))),
      );
      for (const error of errors) {
        expect(error).toBeInstanceOf(RetryLater);
        expect(error).toMatchObject({ scope: 'connection', cause: expect.any(Error) });
        expect(error.waitMs).toBeGreaterThan(900);
      }
      expect(lines).toContainEqual(
        expect.objectContaining({ event: 'token.refresh_failed', connectionId: connection.id, err: expect.anything() }),
      );
      await expectStillConnected(connection.id);
      relay.reset();
      expect(await tokensOf().getAccessToken(connection.id)).toMatchObject({ version: 2 });
      expect(await saved(connection.id)).toMatchObject({ refreshOwner: null, refreshUnansweredAt: null });
    });
  }

  it('the wait for the next refresh grows with each failure, unless the library names a time', async () => {
    const connection = await newConnection();
    const tokens = tokensOf();
    relay.instead = (response) => response.writeHead(500).end();
    const waits: number[] = [];
    for (let i = 0; i < 10; i++) {
      const error = (await failureOf(tokens.getAccessToken(connection.id))) as RetryLater;
      waits.push(error.waitMs);
    }
    expect(waits[0]).toBeLessThan(3000);
    expect(waits[3]).toBeGreaterThan(10_000);
    expect(waits[9]).toBeGreaterThan(110_000);
    expect(waits[9]).toBeLessThan(160_000);
    relay.instead = (response) => response.writeHead(429, { 'retry-after': '600' }).end();
    const found = (await failureOf(tokens.getAccessToken(connection.id))) as RetryLater;
    expect(found.waitMs).toBeGreaterThanOrEqual(600_000);
  });
});

describe('invalid_grant', () => {
  it('invalid_grant to the current token ends the connection once, for all processes', async () => {
    const connection = await newConnection();
    await admin.endConnections();
    const tokens = tokensOf();
    const errors = await Promise.all(Array.from({ length: 20 }, () => failureOf(tokens.getAccessToken(connection.id))));
    for (const error of errors) expect(error).toBeInstanceOf(Disconnected);
    await expectDisconnected(
      connection.id,
      /^the user disconnected the app or lost access at the library; connect again$/,
    );
    expect(await failureOf(tokens.getAccessToken(connection.id))).toBeInstanceOf(Disconnected);
    expect(refreshes()).toBe(1);
  });

  it('invalid_grant after another process has refreshed is ignored, and the new pair is read', async () => {
    const connection = await newConnection();
    const held = latch();
    relay.before = held.pass;
    const call = tokensOf().getAccessToken(connection.id);
    await held.reached;
    const answer = await postToken(library, {
      grant_type: 'refresh_token',
      refresh_token: connection.grant.refresh_token,
    });
    const pair = (await answer.json()) as typeof connection.grant;
    expect(await store.connections.saveRefreshed(connection.id, 1, seal(connection.user.id, pair), 60_000)).toBe(true);
    held.open();
    expect(await call).toEqual({ value: pair.access_token, version: 2 });
    expect(refreshes()).toBe(1);
    await expectStillConnected(connection.id);
  });

  it('invalid_grant to a token that a reconnect has replaced is ignored', async () => {
    const connection = await newConnection();
    await admin.endConnections();
    const held = latch();
    relay.after = held.pass;
    const call = tokensOf().getAccessToken(connection.id);
    await held.reached;
    const grant = await reconnect(connection);
    held.open();
    expect(await call).toEqual({ value: grant.access_token, version: 2 });
    await expectStillConnected(connection.id);
  });

  it('invalid_grant does not end a reconnect that comes at the same time', async () => {
    const connection = await newConnection();
    await admin.endConnections();
    let grant: { access_token: string } | undefined;
    const end: Store['connections']['end'] = async (...args) => {
      grant = await reconnect(connection);
      return store.connections.end(...args);
    };
    const tokens = tokensOf({ store: { ...store, connections: { ...store.connections, end } } });
    expect(await tokens.getAccessToken(connection.id)).toEqual({ value: grant!.access_token, version: 2 });
    await expectStillConnected(connection.id);
  });

  it('invalid_grant ends the connection once the database is back, if it was away', async () => {
    const connection = await newConnection();
    await admin.endConnections();
    const broken = {
      ...store,
      connections: { ...store.connections, end: () => Promise.reject(new Error('the database is away')) },
    };
    const error = await failureOf(tokensOf({ store: broken, leaseMs: 300 }).getAccessToken(connection.id));
    expect(error).not.toBeInstanceOf(Disconnected);
    await expectStillConnected(connection.id);
    expect(await failureOf(tokensOf({ leaseMs: 300 }).getAccessToken(connection.id))).toBeInstanceOf(Disconnected);
    expect(await saved(connection.id)).toMatchObject({ status: 'disconnected' });
  });
});

describe('a lost answer to a refresh', () => {
  const grants = async () => (await admin.connections()).reduce((sum, { refreshTokens }) => sum + refreshTokens, 0);

  it('a lost answer to a refresh after a rotation is recorded, and ends the connection with that reason', async () => {
    const before = await grants();
    const connection = await newConnection();
    await admin.setFaults({ endpoint: 'token', dropAnswer: true, times: 1 });
    const tokens = tokensOf({ apiUrl: library.apiUrl });
    const first = await failureOf(tokens.getAccessToken(connection.id));
    expect(first).toBeInstanceOf(RetryLater);
    expect(first.cause).toBeInstanceOf(Unanswered);
    expect(await saved(connection.id)).toMatchObject({
      status: 'active',
      refreshOwner: null,
      refreshUnansweredAt: expect.any(Date),
    });
    expect(lines).toContainEqual(expect.objectContaining({ event: 'token.refresh_failed', unanswered: true }));
    const second = await failureOf(tokens.getAccessToken(connection.id));
    expect(second).toBeInstanceOf(Disconnected);
    expect(reasonOf(second)).toMatch(lost);
    await expectDisconnected(connection.id, lost);
    // The lost pair does not stay valid at the library.
    expect(await grants()).toBe(before);
  });

  it('a refresh that never reached the library costs nothing: the old token is tried again', async () => {
    const connection = await newConnection();
    relay.before = async (response) => {
      response.destroy();
    };
    const first = await failureOf(tokensOf().getAccessToken(connection.id));
    expect(first.cause).toBeInstanceOf(Unanswered);
    expect(await saved(connection.id)).toMatchObject({ status: 'active', refreshUnansweredAt: expect.any(Date) });
    relay.reset();
    expect(await tokensOf().getAccessToken(connection.id)).toMatchObject({ version: 2 });
    expect(refreshes()).toBe(1);
    expect(await saved(connection.id)).toMatchObject({ refreshUnansweredAt: null });
    await expectStillConnected(connection.id);
  });

  it('a lost answer to a refresh is still known after an outage, when the library refuses the token', async () => {
    const connection = await newConnection();
    let response: { destroy(): void } | undefined;
    relay.before = async (it) => {
      response = it;
    };
    relay.after = async () => {
      response!.destroy();
    };
    await failureOf(tokensOf().getAccessToken(connection.id));
    relay.reset();
    for (const status of [503, 429]) {
      relay.instead = (response) => response.writeHead(status).end();
      expect(await failureOf(tokensOf().getAccessToken(connection.id))).toBeInstanceOf(RetryLater);
    }
    relay.reset();
    expect(await failureOf(tokensOf().getAccessToken(connection.id))).toBeInstanceOf(Disconnected);
    expect(refreshes()).toBe(1);
    await expectDisconnected(connection.id, lost);
  });

  it('a lost answer to a refresh is forgotten after the next successful refresh', async () => {
    const connection = await newConnection();
    relay.instead = (response) => response.writeHead(502).end();
    await failureOf(tokensOf().getAccessToken(connection.id));
    expect(await saved(connection.id)).toMatchObject({ refreshUnansweredAt: expect.any(Date) });
    relay.reset();
    await tokensOf().getAccessToken(connection.id);
    expect(await saved(connection.id)).toMatchObject({ refreshUnansweredAt: null });
  });

  it('a lost answer to a refresh is forgotten after a reconnect', async () => {
    const connection = await newConnection();
    relay.instead = (response) => response.writeHead(502).end();
    await failureOf(tokensOf().getAccessToken(connection.id));
    relay.reset();
    await reconnect(connection);
    expect(await saved(connection.id)).toMatchObject({ refreshUnansweredAt: null, status: 'active' });
  });
});

describe('the refresh lease', () => {
  it('a process that dies before the library has rotated costs only the time of its refresh lease', {
    tags: 'slow',
  }, async () => {
    const connection = await newConnection();
    const held = latch();
    relay.before = async (response) => {
      await held.pass();
      await until('the end of the connection', () => response.destroyed);
    };
    const dying = await startProcess(connection.id, { leaseMs: 1500 });
    dying.go();
    await held.reached;
    await dying.kill();
    held.open();
    relay.before = undefined;
    expect(await tokensOf().getAccessToken(connection.id)).toMatchObject({ version: 2 });
    await expectStillConnected(connection.id);
  });

  it('a process that dies before it has saved the new pair ends the connection with that reason', {
    tags: 'slow',
  }, async () => {
    const connection = await newConnection();
    const held = latch();
    relay.after = held.pass;
    const dying = await startProcess(connection.id, { leaseMs: 1500 });
    dying.go();
    await held.reached;
    await dying.kill();
    held.open();
    relay.after = undefined;
    const error = await failureOf(tokensOf({ leaseMs: 1000 }).getAccessToken(connection.id));
    expect(error).toBeInstanceOf(Disconnected);
    await expectDisconnected(connection.id, lost);
  });

  it('a process that pauses for longer than its refresh lease can still save its new pair', async () => {
    const connection = await newConnection();
    const held = latch();
    relay.after = held.pass;
    const renewRefresh = async () => {};
    const still = { ...store, connections: { ...store.connections, renewRefresh } };
    const slow = tokensOf({ store: still, leaseMs: 200, instance: 'slow' }).getAccessToken(connection.id);
    await held.reached;
    relay.after = undefined;
    const quick = tokensOf({ leaseMs: 60_000, instance: 'quick' }).getAccessToken(connection.id);
    // The other process has taken over, and got invalid_grant.
    await until('its answer', () => relay.answered === 1);
    await expectStillConnected(connection.id);
    held.open();
    expect(await slow).toMatchObject({ version: 2 });
    expect(await quick).toEqual(await slow);
    await expectStillConnected(connection.id);
  });

  it('invalid_grant to a process that paused while another one refreshed does not end the connection', {
    tags: 'slow',
  }, async () => {
    const connection = await newConnection();
    const [late, delayed] = [latch(), latch()];
    relay.before = late.pass;
    const frozen = await startProcess(connection.id, { leaseMs: 1500 });
    frozen.go();
    await late.reached;
    frozen.freeze();
    relay.before = undefined;
    relay.after = delayed.pass;
    const other = tokensOf({ instance: 'other' }).getAccessToken(connection.id);
    await delayed.reached;
    // The library has rotated. The frozen process gets that answer before the other process has its own.
    relay.after = undefined;
    late.open();
    await until('the answer to the frozen one', () => relay.answered === 1);
    frozen.thaw();
    await until('the frozen one to have read it', async () => {
      const ignored = frozen.logLines().some(({ msg }) => msg === 'refusal of an earlier token ignored');
      return ignored || (await saved(connection.id)).status === 'disconnected';
    });
    await expectStillConnected(connection.id);
    delayed.open();
    const token = await other;
    expect(token).toMatchObject({ version: 2 });
    expect(await frozen.results()).toEqual([`2 ${token.value}`]);
    expect(await works(token.value)).toBe(true);
    await expectStillConnected(connection.id);
  });

  it('a process renews its refresh lease until the library answers', { tags: 'slow' }, async () => {
    const connection = await newConnection();
    const held = latch();
    relay.after = held.pass;
    const leaseMs = 5000;
    const slow = tokensOf({ leaseMs, instance: 'slow' }).getAccessToken(connection.id);
    await held.reached;
    const began = (await saved(connection.id)).refreshUntil!.getTime();
    const quick = tokensOf({ leaseMs, instance: 'quick' }).getAccessToken(connection.id);
    const lasts = async () => (await saved(connection.id)).refreshUntil!.getTime() > began + leaseMs;
    await until('the lease to be renewed after its first end', lasts);
    held.open();
    expect(await slow).toMatchObject({ version: 2 });
    expect(await quick).toEqual(await slow);
    expect(refreshes()).toBe(1);
    await expectStillConnected(connection.id);
  });

  it('a refresh lease keeps other processes from refreshing while it lasts', async () => {
    const connection = await newConnection();
    const held = latch();
    relay.before = held.pass;
    const calls = [tokensOf().getAccessToken(connection.id)];
    await held.reached;
    const record = await saved(connection.id);
    expect(record.refreshOwner).toMatch(/^this process /);
    expect(record.refreshUntil!.getTime() - Date.now()).toBeGreaterThan(30_000);
    for (let i = 0; i < 5; i++) calls.push(tokensOf({ instance: `other ${i}` }).getAccessToken(connection.id));
    expect(await store.connections.leaseRefresh(connection.id, 1, 'yet another', 1000)).toBeUndefined();
    held.open();
    expect(new Set((await Promise.all(calls)).map(({ version }) => version))).toEqual(new Set([2]));
    expect(refreshes()).toBe(1);
  });
});

describe('resealing all tokens with a new key', () => {
  const [old, next] = [randomBytes(32), randomBytes(32)];
  const ofOld = () => tokensOf({ sealer: createSealer([old]) });
  const ofBoth = () => tokensOf({ sealer: createSealer([next, old]) });
  const ofNext = () => tokensOf({ sealer: createSealer([next]) });
  const inAnHour = () => new Date(Date.now() + 3_600_000);

  /** A connection whose tokens are sealed with the old key, and whose access token has not expired. */
  async function newSealed() {
    const connection = await newConnection(inAnHour());
    const pair = { accessToken: connection.grant.access_token, refreshToken: connection.grant.refresh_token };
    await sql.query('UPDATE connections SET tokens = $2 WHERE id = $1', [
      connection.id,
      ofOld().seal(connection.user.id, pair),
    ]);
    return connection;
  }
  const row = async (id: string) => (await store.connections.get(id))!;
  beforeEach(() => sql.query('UPDATE connections SET tokens = NULL'));

  it('resealing makes the old key unnecessary, changes no pair, and does nothing the second time', async () => {
    const [one, two] = [await newSealed(), await newSealed()];
    const before = await row(one.id);
    expect(await ofBoth().rotateKeys()).toMatchObject({ rotated: 2, already: 0, unreadable: [] });
    expect({ ...(await row(one.id)), tokens: '' }).toEqual({ ...before, tokens: '' });
    for (const { id, grant } of [one, two]) {
      expect(await ofNext().getAccessToken(id)).toEqual({ value: grant.access_token, version: 1 });
      expect(await failureOf(ofOld().getAccessToken(id))).toBeInstanceOf(RetryLater);
    }
    const { tokens } = await row(one.id);
    expect(await ofBoth().rotateKeys()).toMatchObject({ rotated: 0, already: 2, unreadable: [] });
    expect((await row(one.id)).tokens).toBe(tokens);
  });

  it('resealing names the missing key of a pair, and leaves that pair unchanged', async () => {
    const [good, sealed] = [await newSealed(), await newConnection(inAnHour())];
    const { tokens } = await row(sealed.id);
    const done = await ofBoth().rotateKeys();
    expect(done).toMatchObject({ rotated: 1, already: 0, unreadable: [{ name: sealed.id }] });
    expect(done.unreadable[0]!.reason).toContain(`the key ${sealer.keyId}, which is not among ENCRYPTION_KEYS`);
    expect((await row(sealed.id)).tokens).toBe(tokens);
    expect(await ofNext().getAccessToken(good.id)).toMatchObject({ version: 1 });
  });

  it('resealing works during a refresh', async () => {
    const connection = await newSealed();
    const held = latch();
    relay.after = held.pass;
    const refreshing = ofOld().getAccessToken(connection.id, 1);
    await held.reached;
    expect(await ofBoth().rotateKeys()).toMatchObject({ rotated: 1 });
    held.open();
    const token = await refreshing;
    expect(token.version).toBe(2);
    expect(await works(token.value)).toBe(true);
    // Saved by a process that knew only the old key: seen, and sealed again.
    expect(await ofBoth().rotateKeys()).toMatchObject({ rotated: 1, already: 0 });
    expect(await ofNext().getAccessToken(connection.id)).toEqual(token);
    relay.reset();
    expect(await works((await ofNext().getAccessToken(connection.id, 2)).value)).toBe(true);
  });

  it('resealing never replaces a newer pair by an older one, however often both happen at once', {
    tags: 'slow',
  }, async () => {
    const all = await Promise.all(Array.from({ length: 4 }, newSealed));
    const back = tokensOf({ sealer: createSealer([old, next]) });
    let refreshing = true;
    const refreshed = Promise.all(
      all.map(async ({ id }) => {
        for (let version = 1; version <= 8; version++) await ofBoth().getAccessToken(id, version);
      }),
    ).finally(() => {
      refreshing = false;
    });
    while (refreshing) {
      await back.rotateKeys();
      await ofBoth().rotateKeys();
    }
    await refreshed;
    await ofBoth().rotateKeys();
    for (const { id } of all) {
      const token = await ofNext().getAccessToken(id);
      expect(token.version).toBe(9);
      expect(await works(token.value)).toBe(true);
      // The refresh token is the current one, too.
      expect(await works((await ofNext().getAccessToken(id, 9)).value)).toBe(true);
    }
  });
});

describe('a reconnect', () => {
  it('a reconnect during a refresh of tokens wins', async () => {
    const connection = await newConnection();
    const held = latch();
    relay.after = held.pass;
    const call = tokensOf().getAccessToken(connection.id);
    await held.reached;
    const grant = await reconnect(connection);
    held.open();
    expect(await call).toEqual({ value: grant.access_token, version: 2 });
    expect((await saved(connection.id)).pair).toEqual({
      accessToken: grant.access_token,
      refreshToken: grant.refresh_token,
    });
    await expectStillConnected(connection.id);
  });

  it('a reconnect after a disconnect gives tokens again', async () => {
    const connection = await newConnection();
    await admin.endConnections();
    const tokens = tokensOf();
    await failureOf(tokens.getAccessToken(connection.id));
    const grant = await reconnect(connection);
    expect(await tokens.getAccessToken(connection.id)).toMatchObject({ value: grant.access_token });
  });
});

describe('a disconnect by the operator', () => {
  it('a disconnect by the operator ends the connection here and at the library, and is reported once', async () => {
    const connection = await newConnection();
    const tokens = tokensOf();
    const both = await Promise.all([tokens.disconnect(connection.id), tokensOf().disconnect(connection.id)]);
    expect(both.filter(({ ended }) => ended)).toEqual([{ ended: true, revoked: true }]);
    expect(await tokens.disconnect(connection.id)).toEqual({ ended: false, revoked: false });
    await expectDisconnected(connection.id, /^disconnected by the operator$/);
    const answer = await postToken(library, {
      grant_type: 'refresh_token',
      refresh_token: connection.grant.refresh_token,
    });
    expect(answer.status).toBe(400);
    expect(relay.requests.map(({ path }) => path)).toEqual(['/api/oauth/revoke']);
  });

  it('a disconnect by the operator ends the connection even if the library cannot be reached', async () => {
    const connection = await newConnection();
    relay.instead = (response) => response.writeHead(500).end();
    expect(await tokensOf().disconnect(connection.id)).toEqual({ ended: true, revoked: false });
    expect(await saved(connection.id)).toMatchObject({ status: 'disconnected', tokens: null });
    expect(lines).toContainEqual(expect.objectContaining({ event: 'grant.revoke_failed' }));
  });

  it('a disconnect by the operator revokes the token that a refresh has just saved', async () => {
    const connection = await newConnection();
    const end: Store['connections']['end'] = async (...args) => {
      await tokensOf({ instance: 'other' }).getAccessToken(connection.id);
      return store.connections.end(...args);
    };
    const tokens = tokensOf({ store: { ...store, connections: { ...store.connections, end } } });
    expect(await tokens.disconnect(connection.id)).toEqual({ ended: true, revoked: true });
    const { body } = relay.requests.find(({ path }) => path === '/api/oauth/revoke')!;
    expect(new URLSearchParams(body).get('token')).not.toBe(connection.grant.refresh_token);
  });

  it('a disconnect by the operator during a refresh revokes the new token too', async () => {
    const connection = await newConnection();
    const held = latch();
    relay.after = held.pass;
    const tokens = tokensOf();
    const call = tokens.getAccessToken(connection.id);
    await held.reached;
    relay.after = undefined;
    await tokens.disconnect(connection.id);
    held.open();
    expect(await failureOf(call)).toBeInstanceOf(Disconnected);
    const revoked = relay.requests
      .filter(({ path }) => path === '/api/oauth/revoke')
      .map(({ body }) => new URLSearchParams(body).get('token'));
    expect(revoked).toHaveLength(2);
    expect(revoked[0]).toBe(connection.grant.refresh_token);
    expect(revoked[1]).not.toBe(connection.grant.refresh_token);
    await expectDisconnected(connection.id, /^disconnected by the operator$/);
  });
});
