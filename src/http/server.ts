import cookie from '@fastify/cookie';
import fastify from 'fastify';
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod';
import { reasonOf } from '../errors.ts';
import type { Operations } from '../operations/operations.ts';
import { apiRoutes, operatorOnly } from './api.ts';
import { type ConnectDeps, connectRoutes } from './connect.ts';
import { page, pageHeaders } from './pages.ts';
import { notFound, Problem, problemHandler } from './problems.ts';

export interface ServerDeps extends ConnectDeps {
  operations: Operations;
  adminToken: string;
  /** What readiness depends on: name → throws when it does not answer. */
  checks: Record<string, () => Promise<void>>;
}

const checkTimeoutMs = 5000;
/** Probes write to the bucket; not each of many load balancers' questions needs a new answer. */
const checkFreshMs = 5000;

/** The web role: connect flow, operator API, health. Listens on `host:port`; returns where. */
export async function startServer(deps: ServerDeps, listen: { host: string; port: number }) {
  const prefix = new URL(deps.publicUrl).pathname.replace(/\/+$/, '');
  const app = fastify({
    // Whether the proxy in front takes the path of PUBLIC_URL off or not, the addresses are the same here.
    rewriteUrl: ({ url = '/' }) => (prefix && url.startsWith(`${prefix}/`) ? url.slice(prefix.length) : url),
    bodyLimit: 1 << 20,
    forceCloseConnections: 'idle',
    return503OnClosing: true,
    trustProxy: false,
  });
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  app.setErrorHandler(problemHandler(deps.log));
  app.setNotFoundHandler(notFound);
  await app.register(cookie);
  // A POST without a body is as good as one with an empty object.
  app.removeContentTypeParser('application/json');
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, body, done) => {
    if (body === '') return done(null, undefined);
    try {
      done(null, JSON.parse(body as string));
    } catch {
      done(new Problem(400, 'invalid_json', 'The body is not JSON.'));
    }
  });

  connectRoutes(app, deps);
  await app.register(
    async (api) => {
      operatorOnly(api, deps.adminToken);
      apiRoutes(api, deps.operations);
    },
    { prefix: '/api' },
  );

  app.get('/', async (_request, reply) =>
    reply.headers(pageHeaders).send(
      page({
        tone: 'plain',
        title: 'asset-mirror is running',
        paragraphs: [
          'To connect an account, open the link that you were sent. Operators ask /api, or the command line.',
        ],
      }),
    ),
  );
  app.get('/healthz', async () => ({ status: 'ok' }));

  let draining = false;
  let last: { at: number; answer: Promise<{ ready: boolean; checks: Record<string, string> }> } | undefined;
  app.get('/readyz', async (_request, reply) => {
    if (draining) return reply.code(503).send({ status: 'stopping', checks: {} });
    if (!last || last.at < Date.now() - checkFreshMs) last = { at: Date.now(), answer: ready(deps.checks) };
    const answer = await last.answer;
    return reply
      .code(answer.ready ? 200 : 503)
      .send({ status: answer.ready ? 'ready' : 'not ready', checks: answer.checks });
  });

  await app.listen(listen);
  const { port } = app.server.address() as { port: number };
  return {
    port,
    /** From now on not ready, so that a load balancer looks elsewhere; everything else still answers. */
    drain() {
      draining = true;
    },
    async close() {
      await app.close();
    },
  };
}

async function ready(checks: ServerDeps['checks']) {
  const results = await Promise.all(
    Object.entries(checks).map(async ([name, check]) => {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new Error(`no answer within ${checkTimeoutMs / 1000} s`)), checkTimeoutMs);
      });
      try {
        await Promise.race([check(), late]);
        return [name, 'ok'] as const;
      } catch (error) {
        return [name, reasonOf(error)] as const;
      } finally {
        clearTimeout(timer);
      }
    }),
  );
  return { ready: results.every(([, result]) => result === 'ok'), checks: Object.fromEntries(results) };
}
