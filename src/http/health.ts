import fastify, { type FastifyInstance } from 'fastify';
import type { Exposition } from '../metrics/exposition.ts';
import type { Readiness } from '../metrics/readiness.ts';
import { notFound } from './problems.ts';
import { requestIdOf } from './request-ids.ts';

/** A check asks database, queue and bucket, so its result is reused for this long. */
const checkFreshMs = 5000;

export type Health = ReturnType<typeof createHealth>;

/** The endpoints for machines: liveness, readiness, metrics. */
export function createHealth(readiness: Readiness, exposition: Exposition) {
  let draining = false;
  return {
    probes(app: FastifyInstance): void {
      app.get('/healthz', { schema: { hide: true } }, async () => ({ status: 'ok' }));
      // Without the bucket, the dashboard and the connect flow still work: `?without=bucket` is ready then.
      app.get<{ Querystring: { without?: string } }>('/readyz', { schema: { hide: true } }, async (request, reply) => {
        if (draining) return reply.code(503).send({ status: 'stopping', checks: {} });
        const checks = await readiness.results(checkFreshMs);
        const ready = Object.keys(checks).every((name) => checks[name] === 'ok' || name === request.query.without);
        return reply.code(ready ? 200 : 503).send({ status: ready ? 'ready' : 'not ready', checks });
      });
    },

    metrics(app: FastifyInstance): void {
      app.get('/metrics', { schema: { hide: true } }, async (_request, reply) =>
        reply.type(exposition.contentType).send(await exposition.text()),
      );
    },

    /** Reports not ready from now on, so that load balancers use another process. All routes still answer. */
    drain(): void {
      draining = true;
    },
  };
}

/** Listens on METRICS_PORT, for machines only, in every role. */
export async function startHealthServer(health: Health, listen: { host: string; port: number }) {
  const app = fastify({ forceCloseConnections: 'idle', trustProxy: false, genReqId: requestIdOf });
  app.setNotFoundHandler(notFound);
  health.probes(app);
  health.metrics(app);
  await app.listen(listen);
  const { port } = app.server.address() as { port: number };
  return { port, close: () => app.close() };
}
