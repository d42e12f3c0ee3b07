import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { Metrics } from './metrics.ts';
import type { Readiness } from './readiness.ts';

export type Exposition = ReturnType<typeof createExposition>;

/** A check asks database, queue and bucket, so its result is reused for this long. */
const checkFreshMs = 30_000;

/**
 * Metrics of the runtime: memory, CPU time, garbage collection, event loop. Collected from the first scrape on, because
 * watching the event loop wakes an idle process a hundred times a second.
 */
let runtime: Registry | undefined;

function ofRuntime(): Registry {
  if (!runtime) {
    runtime = new Registry();
    collectDefaultMetrics({ register: runtime });
  }
  return runtime;
}

/** All metrics of a process in the text format of Prometheus. */
export function createExposition(options: {
  metrics: Metrics;
  readiness: Readiness;
  /** Updates the gauges of the database, in processes that export them. */
  refresh?: (() => Promise<unknown>) | undefined;
}) {
  const { registry } = options.metrics;
  const dependencies = new Registry();
  const up = new Gauge({
    name: 'asset_mirror_dependency_up',
    help: 'Whether a dependency of this process answers: database, queue, bucket.',
    labelNames: ['dependency'],
    registers: [dependencies],
  });

  return {
    contentType: registry.contentType,
    async text(): Promise<string> {
      const [checks] = await Promise.all([options.readiness.results(checkFreshMs), options.refresh?.()]);
      for (const [dependency, answer] of Object.entries(checks)) up.set({ dependency }, answer === 'ok' ? 1 : 0);
      return Registry.merge([registry, dependencies, ofRuntime()]).metrics();
    },
  };
}
