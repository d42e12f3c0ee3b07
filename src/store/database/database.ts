import { CamelCasePlugin, Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { ConfigurationError } from '../../floor/errors.ts';
import type { Log } from '../../floor/log.ts';
import { MigrationDialect, migrate } from './migrations.ts';
import type { Database, Schema } from './schema.ts';
import { databaseProblem } from './unreachable.ts';

// Sizes, counts and epoch milliseconds all fit a double exactly.
const types = {
  getTypeParser(oid: number, format?: 'text' | 'binary') {
    return oid === pg.types.builtins.INT8 ? Number : pg.types.getTypeParser(oid, format as 'text');
  },
};

export const plugins = [new CamelCasePlugin({ maintainNestedObjectKeys: true })];

/**
 * Opens the database and brings its schema up to date.
 * @throws ConfigurationError if the database cannot be reached or refuses the user
 */
export async function openDatabase(options: { url: string; log: Log }): Promise<Database> {
  await upgrade(options);
  const pool = openPool(options, {
    max: 24,
    // A dead connection must not block the saving of a token for minutes.
    query_timeout: 60_000,
    // A process that hangs in a transaction must not hold locks that others wait for.
    onConnect: (client) => client.query('SET idle_in_transaction_session_timeout = 15000'),
  });
  return new Kysely<Schema>({
    dialect: new PostgresDialect({ pool }),
    plugins,
  });
}

/** Has no time limit: another process may hold the lock, and an index on millions of rows takes minutes. */
async function upgrade(options: { url: string; log: Log }): Promise<void> {
  const db = new Kysely({ dialect: new MigrationDialect({ pool: openPool(options, { max: 1 }) }) });
  try {
    await migrate(db, options.log);
  } catch (error) {
    const problem = databaseProblem(error, options.url);
    throw problem ? new ConfigurationError([`DATABASE_URL: ${problem.found}; ${problem.remedy}.`]) : error;
  } finally {
    await db.destroy();
  }
}

/**
 * Closes itself after an error that PostgreSQL did not send, such as a read timeout. Otherwise the pool would give the dead
 * connection to the next query.
 */
class Client extends pg.Client {
  override query(...query: unknown[]): never {
    const result: unknown = Reflect.apply(super.query, this, query);
    if (result instanceof Promise) {
      result.catch((error) => {
        if (!(error instanceof pg.DatabaseError)) void this.end();
      });
    }
    return result as never;
  }
}

export function openPool({ url, log }: { url: string; log: Log }, options: pg.PoolConfig): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
    application_name: 'asset-mirror',
    types: types as never,
    Client,
    ...options,
  });
  // A connection that breaks while idle is replaced at the next query; without a listener it would end the process.
  pool.on('error', (err) => log.warn({ event: 'database.connection_lost', err }, 'database connection lost'));
  // A connection may also break within a transaction: the next statement fails then.
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}

/** A notice of a change to other processes. A missed change is found when the process listens again, or when it renews its leases. */
export interface Notice {
  connectionId?: string;
  settings?: true;
}

const channel = 'asset_mirror';
const eventChannel = 'asset_mirror_events';

/**
 * Listens on its own connection, and reconnects when it breaks. Behind a pooler in transaction mode nothing arrives;
 * then processes see changes when they renew their leases, or search for work.
 */
export function listen(options: {
  url: string;
  log: Log;
  onNotice: (notice: Notice) => void;
  /** There are new events. */
  onEvents: () => void;
}) {
  let client: pg.Client | undefined;
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  const again = () => {
    client?.removeAllListeners();
    client?.on('error', () => {});
    client?.end().catch(() => {});
    client = undefined;
    if (!closed) timer = setTimeout(start, 1000);
  };
  const start = async () => {
    const c = new pg.Client({
      connectionString: options.url,
      application_name: 'asset-mirror listen',
      keepAlive: true,
    });
    client = c;
    c.on('error', again);
    c.on('end', again);
    c.on('notification', (message) => {
      if (message.channel === eventChannel) return options.onEvents();
      try {
        options.onNotice(JSON.parse(message.payload ?? '{}'));
      } catch (err) {
        options.log.warn({ event: 'database.notice_ignored', err }, 'unreadable notification of the database ignored');
      }
    });
    try {
      await c.connect();
      await c.query(`LISTEN ${channel}; LISTEN ${eventChannel}`);
      // Earlier notices were missed.
      options.onNotice({ settings: true });
      options.onEvents();
    } catch {
      if (client === c) again();
    }
  };
  void start();
  return {
    async close() {
      closed = true;
      clearTimeout(timer);
      client?.removeAllListeners();
      client?.on('error', () => {});
      await client?.end().catch(() => {});
    },
  };
}
