import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { Disconnected } from '../../src/floor/errors.ts';
import { until } from '../support/until.ts';
import { latch } from './relay.ts';
import { failureOf, newTokensGround } from './tokens-ground.ts';

const ground = await newTokensGround();
const {
  expectStillConnected,
  lines,
  name,
  newConnection,
  refreshes,
  relay,
  saved,
  server,
  sql,
  store,
  tokensOf,
  works,
} = ground;
afterEach(ground.reset);
afterAll(ground.close);

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
          WHERE datname = '${name()}' AND wait_event_type = 'Lock' AND query LIKE '%UPDATE connections SET tokens%'`)
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
