import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from './config/config.ts';
import { makeDataDir, probePort, refuseSamePort } from './config/preflight.ts';
import { type Context, type ContextOptions, openContext } from './context.ts';
import { recordFilterDefaults } from './filters/filter-defaults.ts';
import { watchClock } from './floor/clock.ts';
import type { Log } from './floor/log.ts';
import { version } from './floor/version.ts';
import { createHealth, startHealthServer } from './http/health.ts';
import { createExposition } from './metrics/exposition.ts';
import { recordGauges } from './metrics/gauges.ts';
import { createReadiness } from './metrics/readiness.ts';
import { fetchThrough } from './source/http.ts';
import { startWorkers } from './workers.ts';

export type Role = 'all' | 'web' | 'worker';

export type Service = Awaited<ReturnType<typeof startService>>;

/** Warns at the end of a start if queue or bucket are not available yet. Without the database, the start fails. */
function logAwaited(log: Log, { bucket, queue }: Record<string, string>): void {
  if (queue !== 'ok') log.warn({ event: 'queue.awaited', reason: queue }, 'started, waiting for the queue');
  if (bucket !== 'ok') log.warn({ event: 'bucket.awaited', reason: bucket }, 'started, waiting for the bucket');
}

/**
 * Opens the context and starts a role. `stop` closes everything in reverse order, and waits at most SHUTDOWN_GRACE for that;
 * then it waits for token refreshes that still run.
 * @throws the reason of `signal` if it is aborted before everything has started; then all is closed again
 */
export async function startService(config: Config, log: Log, role: Role = 'all', options: ContextOptions = {}) {
  await using starting = new AsyncDisposableStack();
  const { host, port, metricsPort } = config;
  const { signal } = options;
  await preflight(config, log, role);
  const context = await openContext(config, log, options);
  starting.defer(() => context.close());
  const { store, queues, storage, operations, adminToken, metrics } = context;
  await recordFilterDefaults(store, config.filters, log);

  // No limit until `stop` is called: after a failed start, the workers get the whole grace.
  let stopBy = Number.POSITIVE_INFINITY;
  const readiness = createReadiness({ database: store.check, queue: () => queues.check(), bucket: storage.check });
  // Gauges from the database are the same in every process, so workers do not export them.
  const refresh = role === 'worker' ? undefined : recordGauges({ ...config, ...context });
  const health = createHealth(readiness, createExposition({ metrics, readiness, refresh }));
  if (metricsPort !== undefined) {
    const server = await startHealthServer(health, { host, port: metricsPort });
    starting.defer(() => server.close());
    log.info({ event: 'metrics_server.started', port: server.port }, 'metrics server started');
  }
  if (role !== 'worker') {
    // Imported here, so that workers do not spend memory on it.
    const { startServer } = await import('./http/server.ts');
    const { appUrl, clientId } = config.library;
    const server = await startServer(
      {
        ...config,
        ...context,
        adminToken: adminToken.value,
        fetch: fetchThrough(config.proxies),
        appUrl,
        clientId,
        health,
        version,
        metricsElsewhere: metricsPort !== undefined,
      },
      { host, port },
    );
    starting.defer(() => server.close());
  }
  signal?.throwIfAborted();
  const workers = role === 'web' ? undefined : await startWorkers(context);
  starting.defer(() => workers?.stop(Math.min(config.shutdownGrace, Math.max(0, stopBy - performance.now()))));
  starting.defer(watchClock(log, () => workers?.clockSet()));
  const checks = await readiness.results(0);
  signal?.throwIfAborted();
  log.info({ event: 'service.started', role, port, storage: storage.name, publicUrl: config.publicUrl }, 'started');
  logAwaited(log, checks);

  const running = starting.move();
  return {
    url: config.publicUrl,
    context,
    operations,
    adminToken: adminToken.value,
    storage: storage.name,
    async stop(): Promise<void> {
      stopBy = performance.now() + config.shutdownGrace;
      health.drain();
      await endWithin(config.shutdownGrace, context, running);
    },
  };
}

/** Checks ports and DATA_DIR before anything is opened. */
async function preflight(config: Config, log: Log, role: Role): Promise<void> {
  const { host, port, metricsPort } = config;
  if (role !== 'worker') {
    refuseSamePort(port, metricsPort);
    await probePort('PORT', host, port);
  }
  if (metricsPort !== undefined) await probePort('METRICS_PORT', host, metricsPort);
  for (const { name, similar } of config.misspelled) {
    log.warn({ event: 'setting.misspelled', variable: name, similar }, 'unknown variable that resembles a setting');
  }
  await makeDataDir(config.dataDir, log);
}

/** Closes everything in order, and waits at most `graceMs` for that. Then waits for token refreshes that still run. */
async function endWithin(graceMs: number, { log, tokens }: Context, running: AsyncDisposableStack): Promise<void> {
  const started = performance.now();
  const ended = new AbortController();
  const orderly = running.disposeAsync().finally(() => ended.abort());
  // An unreachable queue must not block the shutdown. Its jobs are recreated from the database.
  const late = sleep(graceMs, true, { signal: ended.signal }).catch(() => false);
  if (await Promise.race([orderly.then(() => false), late])) {
    log.warn(
      { event: 'service.grace_exceeded', ms: Math.round(performance.now() - started) },
      'shutdown grace exceeded, exiting',
    );
    orderly.catch(() => {});
  }
  // This process may have the only copy of a token that was just rotated: wait until it is saved.
  await tokens.end();
  log.info({ event: 'service.stopped', ms: Math.round(performance.now() - started) }, 'stopped');
}
