import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { Writable } from 'node:stream';
import pg from 'pg';
import { expect, inject } from 'vitest';
import { createLog, type Log } from '../../src/floor/log.ts';
import { reasonFields, renderReason } from '../../src/floor/reasons.ts';
import { OAuthClient } from '../../src/oauth/client.ts';
import { createSealer, type Sealer } from '../../src/oauth/seal.ts';
import { Tokens, type TokensOptions } from '../../src/oauth/tokens.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { newDatabase } from '../support/database.ts';
import { connect, type Library, startTestLibrary } from '../support/library.ts';
import { until } from '../support/until.ts';
import type { Order } from './refresher.ts';
import { type Relay, startRelay } from './relay.ts';

export const lost = /the answer to an earlier token refresh was lost/;

interface Line {
  msg: string;
  level: string;
  connectionId?: string;
  reason?: string;
}

export type Options = Partial<TokensOptions> & { apiUrl?: string; timeoutMs?: number; clientId?: string };

export const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    (value) => {
      throw new Error(`it was no failure: ${JSON.stringify(value)}`);
    },
    (error) => error,
  );

/** A library behind a relay, and a database with its store, on which any number of processes ask for tokens. */
export async function newTokensGround() {
  const key = randomBytes(32);
  const sealer = createSealer([key]);
  const { log, lines } = newLog();
  const children: ChildProcess[] = [];

  const { library, admin } = await startTestLibrary();
  const relay = await startRelay(library.apiUrl);
  const database = await newDatabase();
  const store = await openStore({ url: database.url, log });
  /** A connection to the test's database, and one to the server itself. */
  const sql = new pg.Client({ connectionString: database.url });
  const server = new pg.Client({ connectionString: inject('postgres') });
  await Promise.all([sql.connect(), server.connect()]);

  const name = () => new URL(database.url).pathname.slice(1);

  return {
    admin,
    library,
    relay,
    store,
    sql,
    server,
    lines,
    sealer,
    name,

    ...inLibrary({ library, relay }),
    ...inConnections({ library, relay, store, sealer, log }),
    ...inRecords({ store, sql, sealer, lines }),

    /** A process of its own that asks for the same token. */
    startProcess: (connectionId: string, options: Partial<Order> = {}) =>
      startRefresher(
        {
          databaseUrl: database.url,
          apiUrl: relay.url,
          clientId: library.clientId,
          clientSecret: library.clientSecret,
          key: key.toString('base64'),
          connectionId,
          callers: 1,
          leaseMs: 45_000,
          ...options,
        },
        children,
      ),

    /** After each test. */
    async reset() {
      lines.length = 0;
      relay.reset();
      await admin.clearFaults();
      for (const child of children.splice(0)) child.kill('SIGKILL');
    },

    async close() {
      await Promise.all([sql.end(), server.end()]);
      await store.close();
      await database.drop();
      await relay.close();
      await library.close();
    },
  };
}

/** Tokens as the library and the relay see them. */
function inLibrary({ library, relay }: { library: Library; relay: Relay }) {
  const refreshes = () => relay.requests.filter(({ body }) => body.includes('grant_type=refresh_token')).length;
  const works = async (accessToken: string) =>
    (await fetch(`${library.apiUrl}/api/v1/me`, { headers: { authorization: `Bearer ${accessToken}` } })).status ===
    200;
  return { works, refreshes };
}

/** The connections of users, and their tokens in this process. */
function inConnections(of: { library: Library; relay: Relay; store: Store; sealer: Sealer; log: Log }) {
  const { library, relay, store, sealer, log } = of;

  /** The tokens as one process has them. */
  function tokensOf(options: Options = {}) {
    const { apiUrl = relay.url, timeoutMs = 60_000, clientId = library.clientId } = options;
    const client = new OAuthClient({ ...library, apiUrl, timeoutMs, clientId });
    return new Tokens({ store, client, sealer, log, instance: 'this process', ...options });
  }

  const seal = (userId: string, grant: { access_token: string; refresh_token: string }) =>
    tokensOf().seal(userId, {
      accessToken: grant.access_token,
      refreshToken: grant.refresh_token,
      clientId: library.clientId,
    });

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

  return { tokensOf, seal, newConnection, reconnect };
}

/** A log whose lines are kept. */
function newLog() {
  const lines: Line[] = [];
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
  return { log, lines };
}

/** What the database and the log have of a connection. */
function inRecords(of: { store: Store; sql: pg.Client; sealer: Sealer; lines: Line[] }) {
  const { store, sql, sealer, lines } = of;

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

  async function expectStillConnected(id: string) {
    expect(await saved(id)).toMatchObject({
      status: 'active',
      pair: { refreshToken: expect.stringMatching(/^svcr_/) },
    });
    expect((await eventsOf(id)).map(({ kind }) => kind)).not.toContain('connection.disconnected');
    expect(lines.filter(({ msg }) => msg === 'connection disconnected')).toEqual([]);
  }

  /** Status, one event and one log line, all with the same reason. */
  async function expectDisconnected(id: string, reason: RegExp) {
    const connection = await saved(id);
    expect(connection).toMatchObject({ status: 'disconnected', tokens: null, refreshOwner: null });
    const { lastError } = connection;
    expect(renderReason(lastError!)).toMatch(reason);
    const ends = (await eventsOf(id)).filter(({ kind }) => kind === 'connection.disconnected');
    expect(ends).toEqual([{ kind: 'connection.disconnected', data: reasonFields(lastError!) }]);
    const found = lines.filter(({ msg, connectionId }) => msg === 'connection disconnected' && connectionId === id);
    expect(found).toMatchObject([{ level: 'warn', ...reasonFields(lastError!) }]);
  }

  return { saved, expectStillConnected, expectDisconnected };
}

/** A process of its own that asks for a token. */
async function startRefresher(order: Order, children: ChildProcess[]) {
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
