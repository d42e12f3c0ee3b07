import fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import { z } from 'zod';
import { readableCompanies } from '../api/api.ts';
import { summaryOf } from '../api/represent.ts';
import { Rule } from '../faults/rules.ts';
import { HttpError } from '../http-error.ts';
import type { Registration } from '../model.ts';
import { NewRegistration, registerApp, rotateSecret, unregisterApp } from '../oauth/registrations.ts';
import { newId, newPassword } from '../secrets.ts';
import { sendError } from '../server.ts';
import type { Service } from '../service.ts';
import { Change, changeAsset, Upload, uploadAsset } from './assets.ts';

const NewUser = z.strictObject({
  id: z.string().optional(),
  name: z.string(),
  email: z.string(),
  password: z.string().optional(),
});
const NewCompany = z.strictObject({
  id: z.string().optional(),
  name: z.string(),
  userIds: z.array(z.string()).default([]),
});
const NewProject = z.strictObject({
  id: z.string().optional(),
  companyId: z.string(),
  name: z.string(),
  status: z.string().default('active'),
});
const Access = z.strictObject({ userId: z.string(), allowed: z.boolean() });
const OptionalUser = z.strictObject({ userId: z.string().optional() });
const Advance = z.strictObject({ seconds: z.number().nonnegative() });

/** The admin API, for tests and demonstrations. It needs no password, and listens on this machine only. */
export function createAdmin(service: Service): FastifyInstance {
  const server = fastify({ forceCloseConnections: true, bodyLimit: 256 * 1024 * 1024 });
  server.addHook('onRequest', async (request) => {
    // Any web page could send requests to this port. Browsers name its origin.
    if (request.headers.origin !== undefined) {
      throw new HttpError(403, 'forbidden', 'The admin API does not accept requests from browsers.');
    }
  });
  server.setErrorHandler((error, _request, reply) => sendError(service, error, reply));
  addAppRoutes(server, service);
  addUserRoutes(server, service);
  addCompanyRoutes(server, service);
  addAssetRoutes(server, service);
  addConnectionRoutes(server, service);
  addTestRoutes(server, service);
  return server;
}

function addAppRoutes(server: FastifyInstance, service: Service): void {
  const { accounts } = service;

  function appOf(request: FastifyRequest): Registration {
    const { clientId } = request.params as { clientId: string };
    const registration = accounts.registration(clientId);
    if (!registration) throw new HttpError(404, 'not_found', `The app ${clientId} does not exist.`);
    return registration;
  }

  server.get('/apps', async () => accounts.registrations());
  server.post('/apps', async (request) => registerApp(service, parse(NewRegistration, request.body)));
  server.post('/apps/:clientId/secret', async (request) => {
    const registration = appOf(request);
    return { clientId: registration.clientId, clientSecret: await rotateSecret(service, registration) };
  });
  server.patch('/apps/:clientId', async (request) => {
    const { clientId, ...before } = appOf(request);
    const registration = { clientId, ...parse(NewRegistration, { ...before, ...Object(request.body) }) };
    await accounts.register(registration);
    return registration;
  });
  server.delete('/apps/:clientId', async (request) => {
    await unregisterApp(service, appOf(request));
    return {};
  });
}

function addUserRoutes(server: FastifyInstance, { accounts, connections }: Service): void {
  server.get('/users', async () => accounts.users());
  server.post('/users', async (request) => {
    const { id = newId('usr'), name, email, password = newPassword() } = parse(NewUser, request.body);
    await accounts.addUser({ id, name, email }, password);
    return { id, name, email, password };
  });
  server.delete('/users/:id', async (request) => {
    await connections.end(connections.ofUser(idOf(request)));
    await accounts.removeUser(idOf(request));
    return {};
  });
}

function addCompanyRoutes(server: FastifyInstance, service: Service): void {
  const { accounts, catalogue, connections } = service;

  server.get('/companies', async () => accounts.companies());
  server.post('/companies', async (request) => {
    const { id = newId('cmp'), name, userIds } = parse(NewCompany, request.body);
    await accounts.addCompany({ id, name });
    for (const userId of userIds) await accounts.setAccess(userId, id, true);
    return { id, name };
  });
  server.post('/companies/:id/access', async (request) => {
    const { userId, allowed } = parse(Access, request.body);
    const companyId = idOf(request);
    if (!allowed) {
      // Section 3.2: connections that can read nothing else end. They end first, so that none is left after a crash.
      const isOnly = ({ id }: { id: string }) => id === companyId;
      const lost = connections
        .ofUser(userId)
        .filter((connection) => readableCompanies(service, connection).every(isOnly));
      await connections.end(lost);
    }
    await accounts.setAccess(userId, companyId, allowed);
    return {};
  });
  server.post('/projects', async (request) => {
    const { id = newId('prj'), ...project } = parse(NewProject, request.body);
    catalogue.addProject({ id, ...project });
    return { id, ...project };
  });
}

function addAssetRoutes(server: FastifyInstance, service: Service): void {
  server.post('/assets', async (request) => {
    const asset = uploadAsset(service, parse(Upload, request.body));
    return { ...summaryOf(service, asset), id: asset.id };
  });
  server.patch('/assets/:id', async (request) => {
    const asset = changeAsset(service, idOf(request), parse(Change, request.body));
    return { ...summaryOf(service, asset), id: asset.id };
  });
  server.delete('/assets/:id', async (request) => {
    service.catalogue.remove(idOf(request));
    return {};
  });
}

function addConnectionRoutes(server: FastifyInstance, { accounts, connections }: Service): void {
  server.post('/tokens/expire', async (request) => {
    const { userId } = parse(OptionalUser, request.body);
    return { expired: await connections.expireAccessTokens(userId) };
  });
  server.get('/connections', async () =>
    accounts.users().map(({ id, email }) => ({ userId: id, email, refreshTokens: connections.countRefreshTokens(id) })),
  );
  server.post('/connections/end', async (request) => {
    const { userId } = parse(OptionalUser, request.body);
    const users = accounts.users().filter(({ id }) => userId === undefined || userId === id);
    const ended = users.flatMap(({ id }) => connections.ofUser(id));
    await connections.end(ended);
    return { ended: ended.length };
  });
}

function addTestRoutes(server: FastifyInstance, { clock, faults, requests }: Service): void {
  server.get('/faults', async () => faults.rules());
  server.put('/faults', async (request) => {
    faults.set(parse(z.array(Rule), request.body));
    return {};
  });
  server.post('/faults', async (request) => {
    faults.add(parse(Rule, request.body));
    return {};
  });
  server.delete('/faults', async () => {
    faults.set([]);
    return {};
  });
  server.get('/requests', async () => requests.all());
  server.delete('/requests', async () => {
    requests.clear();
    return {};
  });
  server.post('/clock', async (request) => {
    clock.advance(parse(Advance, request.body).seconds * 1000);
    return { now: clock.now() };
  });
}

function idOf(request: FastifyRequest): string {
  return (request.params as { id: string }).id;
}

function parse<T extends z.ZodType>(schema: T, body: unknown): z.output<T> {
  const parsed = schema.safeParse(body ?? {});
  if (!parsed.success) throw new HttpError(400, 'invalid_request', z.prettifyError(parsed.error));
  return parsed.data;
}
