import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from './config.ts';
import { openContext } from './context.ts';
import { makeDataDir, probePort } from './ground.ts';
import { startServer } from './http/server.ts';
import type { Log } from './log.ts';

export type Role = 'all' | 'web' | 'worker';

export type Service = Awaited<ReturnType<typeof startService>>;

/**
 * Opens the context and starts the roles; `stop` ends them in order, within the grace.
 * @throws the reason of `signal` when that says to stop before everything has started; what was open is closed again
 */
export async function startService(config: Config, log: Log, role: Role = 'all', signal?: AbortSignal) {
  await using starting = new AsyncDisposableStack();
  if (role !== 'worker') await probePort(config.host, config.port);
  await makeDataDir(config.dataDir);
  const context = await openContext(config, log, signal);
  starting.defer(() => context.close());
  const { store, queues, storage, operations, adminToken } = context;

  let stopBy = Number.POSITIVE_INFINITY;
  let drain = () => {};
  if (role !== 'worker') {
    const checks = { database: store.check, queue: queues.check, bucket: storage.check };
    const { appUrl, clientId } = config.library;
    const server = await startServer({ ...context, publicUrl: config.publicUrl, appUrl, clientId, checks }, config);
    starting.defer(() => server.close());
    drain = server.drain;
    signal?.throwIfAborted();
  }
  if (role !== 'web') {
    const workers = await context.startWorkers();
    starting.defer(() => workers.stop(Math.max(0, stopBy - Date.now())));
  }
  signal?.throwIfAborted();
  log.info({ role, port: config.port, storage: storage.name, publicUrl: config.publicUrl }, 'started');

  const running = starting.move();
  return {
    url: config.publicUrl,
    context,
    operations,
    adminToken,
    storage: storage.name,
    async stop(): Promise<void> {
      const started = Date.now();
      stopBy = started + config.shutdownGrace;
      drain();
      const ended = new AbortController();
      const orderly = running.disposeAsync().finally(() => ended.abort());
      // A queue that does not answer cannot be told goodbye: what is on it is made again from the records.
      const late = sleep(config.shutdownGrace, true, { signal: ended.signal }).catch(() => false);
      if (await Promise.race([orderly.then(() => false), late])) {
        log.warn({ ms: Date.now() - started }, 'not everything could be closed in time; leaving it');
        orderly.catch(() => {});
      }
      // Of a token that was rotated just now this process has the only copy: that is saved, however long it takes.
      await context.tokens.settled();
      log.info({ ms: Date.now() - started }, 'stopped');
    },
  };
}
