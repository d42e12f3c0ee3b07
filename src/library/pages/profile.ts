import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { readableCompanies } from '../api/api.ts';
import type { User } from '../model.ts';
import type { Service } from '../service.ts';
import { sendPage } from './layout.ts';
import { type ConnectedApp, profilePage } from './pages.ts';
import type { Sessions } from './sessions.ts';

/** The user's profile, where an app is disconnected (sections 3.2 and 5). */
export function registerProfile(server: FastifyInstance, service: Service, sessions: Sessions): void {
  const toSignIn = (reply: FastifyReply) => reply.redirect(`${service.addresses.app}/sign-in?next=%2Fprofile`, 303);

  server.get('/', async (_request, reply) => reply.redirect(`${service.addresses.app}/profile`, 303));

  server.get('/profile', async (request: FastifyRequest, reply) => {
    const user = sessions.user(request);
    if (!user) return toSignIn(reply);
    const csrf = sessions.csrf(sessions.begin(request, reply));
    const companies = service.accounts.companiesOf(user.id);
    return sendPage(reply, profilePage(user, companies, connectedApps(service, user), csrf));
  });

  server.post('/profile/disconnect', async (request, reply) => {
    sessions.checkCsrf(request);
    const user = sessions.user(request);
    if (!user) return toSignIn(reply);
    const { client } = request.body as { client?: unknown };
    const connections = service.connections.of(user.id).filter(({ clientId }) => clientId === client);
    await service.connections.end(...connections.map(({ id }) => id));
    return reply.redirect(`${service.addresses.app}/profile`, 303);
  });
}

/** An app is listed once, however often it was connected. */
function connectedApps(service: Service, user: User): ConnectedApp[] {
  const apps = new Map<string, ConnectedApp>();
  for (const connection of service.connections.of(user.id)) {
    const registration = service.accounts.registration(connection.clientId);
    if (!registration) continue;
    const app = apps.get(connection.clientId) ?? { registration, since: connection.since, companies: [] };
    const known = new Set(app.companies.map(({ id }) => id));
    app.companies.push(...readableCompanies(service, connection).filter(({ id }) => !known.has(id)));
    apps.set(connection.clientId, app);
  }
  return [...apps.values()];
}
