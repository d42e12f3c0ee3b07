import fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import { z } from 'zod';
import { readableCompanies } from './api.ts';
import { Rule } from './faults.ts';
import { NewRegistration, registerApp, rotateSecret } from './registrations.ts';
import { listed } from './represent.ts';
import { newId, newPassword } from './secrets.ts';
import { asRefusal } from './server.ts';
import { Refusal, type Service } from './service.ts';
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

  server.post('/apps', async (request) => registerApp(service, read(NewRegistration, request)));
  server.post('/apps/:clientId/secret', async (request) => {
    const { clientId } = request.params as { clientId: string };
    const registration = await accounts.registration(clientId);
    if (!registration) throw new Refusal(404, 'not_found', `There is no app ${clientId}.`);
    return { clientId, clientSecret: await rotateSecret(service, registration) };
  });

  server.get('/users', () => accounts.users());
  server.post('/users', async (request) => {
    const { id = newId('usr'), name, email, password = newPassword() } = read(NewUser, request);
    await accounts.addUser({ id, name, email }, password);
    return { id, name, email, password };
  });
  server.delete('/users/:id', async (request) => {
    const { id } = request.params as { id: string };
    await accounts.removeUser(id);
    await endLost(id);
    return {};
  });

  server.get('/companies', () => accounts.companies());
  server.post('/companies', async (request) => {
    const { id = newId('cmp'), name, userIds } = read(NewCompany, request);
    await accounts.addCompany({ id, name });
    for (const userId of userIds) await accounts.setAccess(userId, id, true);
    return { id, name };
  });
  server.post('/companies/:id/access', async (request) => {
    const { userId, allowed } = read(Access, request);
    await accounts.setAccess(userId, (request.params as { id: string }).id, allowed);
    if (!allowed) await endLost(userId);
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
    Promise.all(
      (await accounts.users()).map(async ({ id, email }) => ({
        userId: id,
        email,
        refreshTokens: await connections.liveRefreshTokens(id),
      })),
    ),
  );
  server.post('/connections/end', async (request) => {
    const { userId } = read(Whose, request);
    const ended = [];
    for (const user of await accounts.users()) {
      if (userId === undefined || userId === user.id) ended.push(...(await connections.of(user.id)));
    }
    for (const { id } of ended) await connections.end(id);
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

  /** Section 3.2: who can no longer read anything that was granted has lost access, and the connection ends. */
  async function endLost(userId: string): Promise<void> {
    for (const connection of await connections.of(userId)) {
      if ((await readableCompanies(service, connection)).length === 0) await connections.end(connection.id);
    }
  }

  return server;
}

function read<T extends z.ZodType>(schema: T, request: FastifyRequest): z.output<T> {
  const parsed = schema.safeParse(request.body ?? {});
  if (!parsed.success) throw new Refusal(400, 'invalid_request', z.prettifyError(parsed.error));
  return parsed.data;
}
