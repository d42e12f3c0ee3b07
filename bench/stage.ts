import { prefixOf } from '../src/queue/backend.ts';
import type { Role } from '../src/service.ts';
import { newBrowser } from '../test/support/browser.ts';
import { adminOf } from '../test/support/library.ts';
import { askOperatorApi, environmentOf, startMirror } from './mirror.ts';
import { ended, memoryOfAll } from './proc.ts';
import { addConnections, addMirrored, foldCounts, migrate, untilMirrored } from './records.ts';
import { cpuOfServers, requestsTo, type ServerOptions, startServers } from './servers.ts';

export type Stage = Awaited<ReturnType<typeof newStage>>;

/**
 * The servers of a benchmark: PostgreSQL and, on request, a library or a null source, Redis and an S3 server, each as a
 * process on this machine; and the mirrors that it starts. Everything ends when it is disposed.
 */
export async function newStage(options: ServerOptions) {
  await using starting = new AsyncDisposableStack();
  const servers = await startServers(starting, options);
  const { url, directory, postgres, redis, s3, source } = servers;
  const { db } = postgres;
  const environment = environmentOf(servers);
  const operator = (path: string, body?: object) => askOperatorApi(url, path, body);
  const stack = starting.move();

  return {
    url,
    directory,
    environment,
    db,
    redis: redis?.client,
    s3,
    /** The address of the null source. */
    origin: source.origin,
    /** With `tls`: the file of the certificate authority of the null source and the S3 server. */
    ca: servers.certificates?.ca,
    operator,
    ended,
    postgresVersion: postgres.version,
    /** The library in this repository, if it is used, and its admin API. */
    library: source.library!,
    get admin() {
      return adminOf(source.library!.adminUrl!);
    },

    /** Starts a mirror, and waits until it has. `profile` is a directory for V8's profile, written at its end. */
    mirror: (role: Role = 'all', added: Record<string, string> = {}, profile = process.env.PROFILE) =>
      startMirror(stack, { ...environment, ...added }, role, profile),

    /** Connects a user of the library; returns the connection's id. */
    async connect(userId = source.library!.users[0]!.id): Promise<string> {
      const browser = newBrowser();
      const consent = (await browser.get((await operator('/connect-links', {})).url)).headers.get('location');
      await browser.visit(`${consent}&login_hint=${userId}`);
      const { rows } = await db.query('SELECT id FROM connections WHERE user_id = $1', [userId]);
      return rows[0].id;
    },

    migrate: () => migrate(postgres.url),
    foldCounts: () => foldCounts(postgres.url),

    /** Connections of users `from` to `to` of the null source; up to `highWaterMark` everything is listed. */
    addConnections: (from: number, to: number, highWaterMark: number | null = null) =>
      addConnections(db, from, to, { highWaterMark, shared: options.source?.shared }),

    /** All assets of these users of the null source, as if they had been mirrored. */
    addMirrored: (from: number, to: number) => addMirrored(postgres, options.source!, from, to),

    /** The prefix of the mirror's keys in Redis, once one has started. */
    async queueKeys(): Promise<string> {
      const { rows } = await db.query("SELECT value FROM settings WHERE name = 'installation'");
      return prefixOf(rows[0].value);
    },

    mirrored: (count: number) => untilMirrored(db, count),
    requests: () => requestsTo(source.child!),
    serversCpu: () => cpuOfServers(servers),
    postgresMemory: () => memoryOfAll(postgres.pid),

    /** The counts so far: statements to PostgreSQL (with `statements`), commands to Redis, requests to the null source. */
    async talk(): Promise<{ statements: number; commands: number; requests: number }> {
      const { rows } = options.statements
        ? await db.query('SELECT sum(calls)::int AS n FROM pg_stat_statements')
        : { rows: [{ n: 0 }] };
      const info = (await redis?.client.info('stats')) ?? '';
      const commands = Number(/total_commands_processed:(\d+)/.exec(info)?.[1] ?? 0);
      const { requests } = source.origin ? await this.requests() : { requests: 0 };
      return { statements: rows[0].n, commands, requests };
    },

    [Symbol.asyncDispose]: endOf(stack),
  };
}

/** A function that ends everything in `stack`, once. An interrupted benchmark leaves nothing running, either. */
function endOf(stack: AsyncDisposableStack): () => Promise<void> {
  let ending: Promise<void> | undefined;
  const end = () => {
    ending ??= stack.disposeAsync();
    return ending;
  };
  const breakOff = () => void end().finally(() => process.exit(1));
  process.once('SIGINT', breakOff).once('SIGTERM', breakOff);
  stack.defer(() => void process.off('SIGINT', breakOff).off('SIGTERM', breakOff));
  return end;
}
