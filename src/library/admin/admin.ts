import fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import { z } from 'zod';
import { readableCompanies } from '../api/api.ts';
import { listed } from '../api/represent.ts';
import { Rule } from '../faults/rules.ts';
import type { Registration } from '../model.ts';
import { NewRegistration, registerApp, rotateSecret, unregisterApp } from '../oauth/registrations.ts';
import { newId, newPassword } from '../secrets.ts';
import { asRefusal } from '../server.ts';
import { Refusal, type Service } from '../service.ts';
import { Change, change, Upload, upload } from './uploads.ts';

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
const Whose = z.strictObject({ userId: z.string().optional() });
const Advance = z.strictObject({ seconds: z.number().nonnegative() });

/**
 * What only the people behind the service can do, for tests and demonstrations: it asks for no password and listens on
 * this machine alone.
 */
export function createAdmin(service: Service): FastifyInstance {
  const { accounts, catalogue, clock, connections, faults, requests } = service;
  const server = fastify({ forceCloseConnections: true, bodyLimit: 256 * 1024 * 1024 });

  server.addHook('onRequest', async (request) => {
    // A page in a browser on this machine could reach the port; browsers say where such a request comes from.
    if (request.headers.origin !== undefined) throw new Refusal(403, 'forbidden', 'The admin API is not for browsers.');
  });
  server.setErrorHandler((error, _request, reply) => {
    const refusal = asRefusal(error);
    if (refusal.status >= 500) service.log({ error: String((error as Error).stack ?? error) });
    reply.code(refusal.status).send({ error: refusal.code, message: refusal.message });
  });

  server.get('/apps', async () => accounts.registrations());
  server.post('/apps', async (request) => registerApp(service, read(NewRegistration, request)));
  server.post('/apps/:clientId/secret', async (request) => {
    const registration = appOf(request);
    return { clientId: registration.clientId, clientSecret: await rotateSecret(service, registration) };
  });
  server.patch('/apps/:clientId', async (request) => {
    const { clientId, ...before } = appOf(request);
    const registration = { clientId, ...read(NewRegistration, { body: { ...before, ...Object(request.body) } }) };
    await accounts.register(registration);
    return registration;
  });
  server.delete('/apps/:clientId', async (request) => {
    await unregisterApp(service, appOf(request));
    return {};
  });

  server.get('/users', async () => accounts.users());
  server.post('/users', async (request) => {
    const { id = newId('usr'), name, email, password = newPassword() } = read(NewUser, request);
    await accounts.addUser({ id, name, email }, password);
    return { id, name, email, password };
  });
  server.delete('/users/:id', async (request) => {
    const { id } = request.params as { id: string };
    await connections.end(...connections.of(id).map((connection) => connection.id));
    await accounts.removeUser(id);
    return {};
  });

  server.get('/companies', async () => accounts.companies());
  server.post('/companies', async (request) => {
    const { id = newId('cmp'), name, userIds } = read(NewCompany, request);
    await accounts.addCompany({ id, name });
    for (const userId of userIds) await accounts.setAccess(userId, id, true);
    return { id, name };
  });
  server.post('/companies/:id/access', async (request) => {
    const { userId, allowed } = read(Access, request);
    const { id } = request.params as { id: string };
    if (!allowed) await endWithout(id, userId);
    await accounts.setAccess(userId, id, allowed);
    return {};
  });
  server.post('/projects', async (request) => {
    const { id = newId('prj'), ...project } = read(NewProject, request);
    await catalogue.addProject({ id, ...project });
    return { id, ...project };
  });

  server.post('/assets', async (request) => {
    const asset = await upload(service, read(Upload, request));
    return { ...listed(service, asset), id: asset.id };
  });
  server.patch('/assets/:id', async (request) => {
    const asset = await change(service, (request.params as { id: string }).id, read(Change, request));
    return { ...listed(service, asset), id: asset.id };
  });
  server.delete('/assets/:id', async (request) => {
    await catalogue.remove((request.params as { id: string }).id);
    return {};
  });

  server.post('/tokens/expire', async (request) => {
    const { userId = null } = read(Whose, request);
    return { expired: await connections.expireAccessTokens(userId) };
  });
  server.get('/connections', async () =>
    accounts.users().map(({ id, email }) => ({
      userId: id,
      email,
      refreshTokens: connections.liveRefreshTokens(id),
    })),
  );
  server.post('/connections/end', async (request) => {
    const { userId } = read(Whose, request);
    const users = accounts.users().filter(({ id }) => userId === undefined || userId === id);
    const ended = users.flatMap(({ id }) => connections.of(id));
    await connections.end(...ended.map(({ id }) => id));
    return { ended: ended.length };
  });

  server.get('/faults', () => faults.rules());
  server.put('/faults', async (request) => {
    faults.set(read(z.array(Rule), request));
    return {};
  });
  server.post('/faults', async (request) => {
    faults.add(read(Rule, request));
    return {};
  });
  server.delete('/faults', async () => {
    faults.set([]);
    return {};
  });

  server.get('/requests', () => requests.all());
  server.delete('/requests', async () => {
    requests.clear();
    return {};
  });
  server.post('/clock', async (request) => {
    clock.advance(read(Advance, request).seconds * 1000);
    return { now: clock.now() };
  });

  function appOf(request: FastifyRequest): Registration {
    const { clientId } = request.params as { clientId: string };
    const registration = accounts.registration(clientId);
    if (!registration) throw new Refusal(404, 'not_found', `There is no app ${clientId}.`);
    return registration;
  }

  /**
   * Section 3.2: who can no longer read anything that was granted has lost access, and the connection ends. First, so
   * that no crash leaves a connection without a company.
   */
  async function endWithout(companyId: string, userId: string): Promise<void> {
    const lost = connections
      .of(userId)
      .filter((connection) => readableCompanies(service, connection).every(({ id }) => id === companyId));
    await connections.end(...lost.map(({ id }) => id));
  }

  return server;
}

function read<T extends z.ZodType>(schema: T, request: { body: unknown }): z.output<T> {
  const parsed = schema.safeParse(request.body ?? {});
  if (!parsed.success) throw new Refusal(400, 'invalid_request', z.prettifyError(parsed.error));
  return parsed.data;
}
