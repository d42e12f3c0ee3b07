import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { Readiness } from '../readiness.ts';
import type { Metrics } from './metrics.ts';

export type Exposition = ReturnType<typeof createExposition>;

/** Looking at the bucket writes to it: a look that is no older than this will do. */
const looksFreshMs = 30_000;

/**
 * What the runtime tells of this process: memory, CPU time, garbage collection, the event loop. From when it is first asked
 * for: to watch the event loop wakes an idle process a hundred times a second.
 */
let runtime: Registry | undefined;

function ofRuntime(): Registry {
  if (!runtime) {
    runtime = new Registry();
    collectDefaultMetrics({ register: runtime });
  }
  return runtime;
}

/** Everything that a process has to show to Prometheus, in its text format. */
export function createExposition(options: {
  metrics: Metrics;
  readiness: Readiness;
  /** Brings gauges of the records up to date, in processes that show them. */
  refresh?: (() => Promise<void>) | undefined;
}) {
  const { registry } = options.metrics;
  const dependencies = new Registry();
  const up = new Gauge({
    name: 'asset_mirror_dependency_up',
    help: 'Whether what this process rests on answers it: database, queue, bucket.',
    labelNames: ['dependency'],
    registers: [dependencies],
  });

  return {
    contentType: registry.contentType,
    async text(): Promise<string> {
      const [{ checks }] = await Promise.all([options.readiness.look(looksFreshMs), options.refresh?.()]);
      for (const [dependency, answer] of Object.entries(checks)) up.set({ dependency }, answer === 'ok' ? 1 : 0);
      return Registry.merge([registry, dependencies, ofRuntime()]).metrics();
    },
  };
}
