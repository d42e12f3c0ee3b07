import type { AddressInfo } from 'node:net';
import cookie from '@fastify/cookie';
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { createAccounts } from './accounts.ts';
import { createAdmin } from './admin.ts';
import { registerApi } from './api.ts';
import { registerAuthorize } from './authorize.ts';
import { type Catalogue, createCatalogue } from './catalogue.ts';
import { type Clock, createClock } from './clock.ts';
import { createConnections } from './connections.ts';
import type { Content, ContentOption } from './content/content.ts';
import { loadContent } from './content/load.ts';
import { createFaults } from './faults.ts';
import { registerMedia } from './media.ts';
import type { User } from './model.ts';
import { registerOAuth } from './oauth.ts';
import { sendPage } from './pages/layout.ts';
import { problemPage } from './pages/pages.ts';
import { registerProfile } from './profile.ts';
import { NewRegistration, registerApp } from './registrations.ts';
import { createRequestLog } from './requests.ts';
import { newPassword, newSecret } from './secrets.ts';
import { asRefusal, createServer } from './server.ts';
import type { Service, Settings } from './service.ts';
import { createSessions } from './sessions.ts';
import { registerSignIn } from './sign-in.ts';

export { bytesOf, chunksOf } from './content/bytes.ts';

export type LibraryOptions = Partial<Settings> & {
  host?: string;
  /** 0 is any free port. */
  port?: number;
  /** Without it there is no admin API; 0 is any free port. */
  adminPort?: number;
  /** The origin people and apps know, when it is not the one the server listens on. */
  publicUrl?: string;
  clientId?: string;
  clientSecret?: string;
  app?: { name?: string; logoUrl?: string; websiteUrl?: string };
  redirectUris: string[];
  /** Without it there is one user, and no company. */
  content?: ContentOption | undefined;
  log?: (line: object) => void;
};

export type Library = {
  apiUrl: string;
  appUrl: string;
  adminUrl?: string;
  clientId: string;
  clientSecret: string;
  users: (User & { password: string })[];
  close(): Promise<void>;
};

/** Starts the whole service of the spec, with one registered app. */
export async function startLibrary(options: LibraryOptions): Promise<Library> {
  const { host = '127.0.0.1', port = 0, adminPort } = options;
  const registration = registrationOf(options);
  const clock = createClock();
  const { transcodeDelay = 5000, transcriptDelay = 20_000 } = options;
  const delays = { transcode: transcodeDelay, transcript: transcriptDelay };
  const content = await loadContent(options.content, clock.now, delays);
  const service = createService(options, clock, createCatalogue(content.sources));

  const { clientId, clientSecret } = await registerApp(service, registration, options);
  const users = await fill(service, content);

  const server = createLibraryServer(service);
  const admin = adminPort === undefined ? undefined : createAdmin(service);
  const close = async () => {
    await Promise.all([server.close(), admin?.close(), content.close?.()]);
  };
  try {
    await server.listen({ host, port });
    await admin?.listen({ host: '127.0.0.1', port: adminPort! });
  } catch (error) {
    await close();
    throw error;
  }
  const publicUrl = new URL(options.publicUrl ?? addressOf(server)).origin;
  service.addresses = { api: publicUrl, app: publicUrl };

  return {
    apiUrl: publicUrl,
    appUrl: publicUrl,
    ...(admin && { adminUrl: addressOf(admin) }),
    clientId,
    clientSecret,
    users,
    close,
  };
}

function createService(options: LibraryOptions, clock: Clock, catalogue: Catalogue): Service {
  return {
    clock,
    accounts: createAccounts(),
    connections: createConnections(clock.now),
    catalogue,
    faults: createFaults(),
    requests: createRequestLog(options.adminPort !== undefined),
    settings: {
      autoConsent: options.autoConsent ?? false,
      tokenLifetime: options.tokenLifetime ?? 3600,
      linkLifetime: options.linkLifetime ?? 900,
      transcodeDelay: options.transcodeDelay ?? 0,
      transcriptDelay: options.transcriptDelay ?? 0,
    },
    key: newSecret(),
    addresses: { api: '', app: '' },
    log: options.log ?? (() => {}),
  };
}

function createLibraryServer(service: Service): FastifyInstance {
  const server = createServer(service);
  registerApi(server, service);
  registerMedia(server, service);
  registerOAuth(server, service);
  server.register(async (scope) => {
    await scope.register(cookie);
    scope.setErrorHandler((error, _request, reply) => {
      const { status, message } = asRefusal(error);
      if (status >= 500) service.log({ error: String((error as Error).stack ?? error) });
      sendPage(reply, problemPage(status, 'That did not work', message));
    });
    const sessions = createSessions(service);
    registerAuthorize(scope, service, sessions);
    registerSignIn(scope, service, sessions);
    registerProfile(scope, service, sessions);
  });
  return server;
}

function registrationOf({ app = {}, redirectUris }: LibraryOptions): z.infer<typeof NewRegistration> {
  const websiteUrl = URL.parse(redirectUris[0] ?? '')?.origin;
  const parsed = NewRegistration.safeParse({ name: 'asset-mirror', websiteUrl, ...app, redirectUris });
  if (!parsed.success) throw new Error(`The app cannot be registered: ${z.prettifyError(parsed.error)}`);
  return parsed.data;
}

async function fill(service: Service, content: Content): Promise<Library['users']> {
  for (const company of content.companies) await service.accounts.addCompany(company);
  for (const project of content.projects) await service.catalogue.addProject(project);
  for (const asset of content.assets) await service.catalogue.put(asset);
  const users = [];
  // One after the other: the first user is the one that consents by itself.
  for (const { companies, ...user } of content.users) {
    const password = newPassword();
    await service.accounts.addUser(user, password);
    for (const id of companies) await service.accounts.setAccess(user.id, id, true);
    users.push({ ...user, password });
  }
  return users;
}

function addressOf(server: FastifyInstance): string {
  const { address, family, port } = server.server.address() as AddressInfo;
  if (address === '0.0.0.0' || address === '::') return `http://127.0.0.1:${port}`;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
