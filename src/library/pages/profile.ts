import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { readableCompanies } from '../api/api.ts';
import type { User } from '../model.ts';
import type { Service } from '../service.ts';
import { sendPage } from './layout.ts';
import { type ConnectedApp, profilePage } from './pages.ts';
import type { Sessions } from './sessions.ts';

/** The user's profile, where apps are disconnected (sections 3.2 and 5). */
export function registerProfile(server: FastifyInstance, service: Service, sessions: Sessions): void {
  const { accounts, connections } = service;
  const toSignIn = (reply: FastifyReply) => reply.redirect(`${service.addresses.app}/sign-in?next=%2Fprofile`, 303);

  server.get('/', async (_request, reply) => reply.redirect(`${service.addresses.app}/profile`, 303));

  server.get('/profile', async (request: FastifyRequest, reply) => {
    const user = sessions.user(request);
    if (!user) return toSignIn(reply);
    const csrf = sessions.csrf(request, reply);
    return sendPage(reply, profilePage(user, accounts.companiesOf(user.id), connectedApps(service, user), csrf));
  });

  server.post('/profile/disconnect', async (request, reply) => {
    sessions.checkCsrf(request);
    const user = sessions.user(request);
    if (!user) return toSignIn(reply);
    const { client } = request.body as { client?: unknown };
    await connections.end(connections.ofUser(user.id).filter(({ clientId }) => clientId === client));
    return reply.redirect(`${service.addresses.app}/profile`, 303);
  });
}

/** The apps that are connected. An app with several connections is listed once. */
function connectedApps(service: Service, user: User): ConnectedApp[] {
  const apps = new Map<string, ConnectedApp>();
  for (const connection of service.connections.ofUser(user.id)) {
    const registration = service.accounts.registration(connection.clientId);
    if (!registration) continue;
    const app = apps.get(connection.clientId) ?? { registration, since: connection.since, companies: [] };
    const known = new Set(app.companies.map(({ id }) => id));
    app.companies.push(...readableCompanies(service, connection).filter(({ id }) => !known.has(id)));
    apps.set(connection.clientId, app);
  }
  return [...apps.values()];
}
