import cookie from '@fastify/cookie';
import fastify from 'fastify';
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod';
import type { Operations } from '../operations/operations.ts';
import type { Permissions } from '../operations/operators/permissions.ts';
import { Refused } from '../operations/refused.ts';
import type { Queues } from '../queue/queues.ts';
import { apiRoutes } from './api.ts';
import { auditChanges } from './audit-log.ts';
import { type ConnectDeps, connectRoutes } from './connect.ts';
import { dashboard } from './dashboard.ts';
import { EventStreams } from './event-stream.ts';
import type { Health } from './health.ts';
import { describeApi } from './openapi.ts';
import { invalidAddress, invalidHttp, notFound, problemHandler } from './problems.ts';
import { basePath } from './public-url.ts';
import { queuePages } from './queue-pages.ts';
import { correlate, requestIdOf } from './request-ids.ts';
import { FileSender } from './send-file.ts';
import { operatorOnly, signedInOnly } from './sign-in/access.ts';
import { createAuthentication } from './sign-in/authenticate.ts';
import { createProvider } from './sign-in/provider.ts';
import { signInRoutes } from './sign-in/routes.ts';
import { createSessions, type SessionDeps } from './sign-in/sessions.ts';
import { createTokenCheck } from './sign-in/token-check.ts';

export interface ServerDeps extends ConnectDeps {
  operations: Operations;
  queues: Queues;
  adminToken: string;
  permissions: Permissions;
  signIn: SessionDeps['signIn'];
  /** For requests to the provider. */
  fetch: typeof fetch;
  health: Health;
  /** Addresses and ranges of the proxies whose X-Forwarded-For is trusted. */
  trustProxy: string[] | undefined;
  /** Metrics have their own port. */
  metricsElsewhere: boolean;
  version: string;
}

const under = (url: string, prefix: string) =>
  url.startsWith(prefix) && ['/', '?', undefined].includes(url[prefix.length]);

/** A POST may have no body. @throws Refused 400 */
function parseJson(body: string): unknown {
  if (body === '') return undefined;
  try {
    return JSON.parse(body);
  } catch {
    throw new Refused(400, 'invalid_json', 'The body is not valid JSON.');
  }
}

/** The web role: connect flow, operator API, health. Listens on `host:port`, and returns the address. */
export async function startServer(deps: ServerDeps, listen: { host: string; port: number }) {
  const prefix = basePath(deps.publicUrl);
  const app = fastify({
    // The proxy in front may remove the path of PUBLIC_URL or keep it.
    rewriteUrl: ({ url = '/' }) =>
      prefix && under(url, prefix) ? `/${url.slice(prefix.length).replace(/^\//, '')}` : url,
    bodyLimit: 1 << 20,
    // An id has up to 2000 bytes; each may be three characters in an address.
    routerOptions: { maxParamLength: 6000 },
    forceCloseConnections: 'idle',
    // Requests on open connections of load balancers are still answered during the shutdown, with `connection: close`.
    return503OnClosing: false,
    trustProxy: deps.trustProxy ?? false,
    genReqId: requestIdOf,
    frameworkErrors: invalidAddress,
    clientErrorHandler: invalidHttp,
  });
  correlate(app, deps.log);
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  app.setErrorHandler(problemHandler(deps.log));
  app.setNotFoundHandler(notFound);
  await app.register(cookie);
  app.removeContentTypeParser(['application/json', 'text/plain']);
  app.addContentTypeParser('application/json', { parseAs: 'string' }, async (_request: unknown, body: string) =>
    parseJson(body),
  );

  const sessions = createSessions(deps);
  const checkToken = createTokenCheck(deps.adminToken);
  const authentication = createAuthentication({ store: deps.store, sessions, checkToken });
  const access = { authentication, permissions: deps.permissions, publicUrl: deps.publicUrl };
  const provider = deps.signIn.provider && createProvider(deps.signIn.provider, deps);
  const streams = new EventStreams({ ...deps, isStillValid: authentication.isStillValid });
  const sender = new FileSender(deps);
  let closing = false;
  app.addHook('preClose', async () => {
    closing = true;
    streams.close();
    sender.close();
  });
  // A connection that stays open after its answer would delay the shutdown.
  app.addHook('onSend', async (_request, reply) => {
    if (closing) reply.header('connection', 'close');
  });

  await describeApi(app, deps);
  connectRoutes(app, deps);
  await app.register(async (form) => signInRoutes(form, { ...deps, ...access, sessions, checkToken, provider }));
  await app.register(
    async (api) => {
      operatorOnly(api, access);
      auditChanges(api, deps);
      apiRoutes(api, { ...deps, streams, sender });
    },
    { prefix: '/api' },
  );
  await app.register(async (pages) => {
    signedInOnly(pages, access);
    await pages.register(async (page) =>
      dashboard(page, { base: prefix, version: deps.version, linkOrigin: deps.operations.linkOrigin }),
    );
    await pages.register(async (queues) => queuePages(queues, { ...deps, base: prefix }));
  });
  deps.health.probes(app);
  if (!deps.metricsElsewhere) deps.health.metrics(app);

  await app.listen(listen);
  const { port } = app.server.address() as { port: number };
  return { port, close: () => app.close() };
}
