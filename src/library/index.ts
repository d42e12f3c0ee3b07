import type { AddressInfo } from 'node:net';
import cookie from '@fastify/cookie';
import type { FastifyInstance } from 'fastify';
import { createAccounts } from './accounts.ts';
import { createAdmin } from './admin/admin.ts';
import { registerApi } from './api/api.ts';
import { registerMedia } from './api/media.ts';
import { type Catalogue, createCatalogue } from './catalogue.ts';
import { type Clock, createClock } from './clock.ts';
import type { Content, ContentOption } from './content/content.ts';
import { loadContent } from './content/load.ts';
import { openDatabase } from './database/postgres.ts';
import { openStore, type Store, settingOf } from './database/store.ts';
import { createFaults } from './faults/rules.ts';
import type { User } from './model.ts';
import { registerAuthorize } from './oauth/authorize.ts';
import { createConnections } from './oauth/connections.ts';
import { registerOwnApp } from './oauth/registrations.ts';
import { registerOAuth } from './oauth/tokens.ts';
import { sendPage } from './pages/layout.ts';
import { problemPage } from './pages/pages.ts';
import { registerProfile } from './pages/profile.ts';
import { createSessions } from './pages/sessions.ts';
import { registerSignIn } from './pages/sign-in.ts';
import { createRequestLog } from './requests.ts';
import { madeUpPassword, newSecret } from './secrets.ts';
import { asRefusal, createServer } from './server.ts';
import type { Service, Settings } from './service.ts';

export { bytesOf, chunksOf } from './content/bytes.ts';

export type LibraryOptions = Partial<Settings> & {
  host?: string;
  /** 0 is any free port. */
  port?: number;
  /** Without it there is no admin API; 0 is any free port. */
  adminPort?: number;
  /** The origin people and apps know, when it is not the one the server listens on. */
  publicUrl?: string;
  /** A PostgreSQL database, whose schema `library` keeps what a restart must not forget. Without it all is forgotten. */
  databaseUrl?: string;
  /** Of the app that is registered at the start, as is what follows. What is not given stays as it was registered. */
  clientId?: string;
  clientSecret?: string;
  app?: { name?: string; logoUrl?: string; websiteUrl?: string };
  redirectUris?: string[];
  /** A new secret takes the place of the one from an earlier start. */
  rotateSecret?: boolean;
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

/** The secret is shown once (section 2.1): null if an earlier start has shown it. */
export type KeptLibrary = Omit<Library, 'clientSecret'> & { clientSecret: string | null };

/** Starts the whole service of the spec, with one registered app. */
export async function startLibrary(options: LibraryOptions & { databaseUrl?: never }): Promise<Library>;
export async function startLibrary(options: LibraryOptions): Promise<KeptLibrary>;
export async function startLibrary(options: LibraryOptions): Promise<KeptLibrary> {
  const { host = '127.0.0.1', port = 0, adminPort, databaseUrl, log = () => {} } = options;
  const { transcodeDelay = 5000, transcriptDelay = 20_000 } = options;
  const delays = { transcode: transcodeDelay, transcript: transcriptDelay };
  const clock = createClock();

  await using starting = new AsyncDisposableStack();
  const store = await openStore(databaseUrl === undefined ? undefined : await openDatabase(databaseUrl, log));
  starting.defer(() => store.close());
  const content = await loadContent(options.content, { now: clock.now, delays, store, log });
  starting.defer(async () => content.close?.());
  const key = await settingOf(store, 'key', newSecret);
  const service = createService(options, clock, store, createCatalogue(content.sources), key);

  const { clientId, clientSecret } = await registerOwnApp(service, options);
  const users = await fill(service, content);

  const server = createLibraryServer(service);
  starting.defer(() => server.close());
  await server.listen({ host, port });
  const admin = adminPort === undefined ? undefined : createAdmin(service);
  if (admin) {
    starting.defer(() => admin.close());
    await admin.listen({ host: '127.0.0.1', port: adminPort! });
  }
  const publicUrl = new URL(options.publicUrl ?? addressOf(server)).origin;
  service.addresses = { api: publicUrl, app: publicUrl };
  const running = starting.move();

  return {
    apiUrl: publicUrl,
    appUrl: publicUrl,
    ...(admin && { adminUrl: addressOf(admin) }),
    clientId,
    clientSecret,
    users,
    close: () => running.disposeAsync(),
  };
}

function createService(
  options: LibraryOptions,
  clock: Clock,
  store: Store,
  catalogue: Catalogue,
  key: string,
): Service {
  return {
    clock,
    store,
    accounts: createAccounts(store),
    connections: createConnections(store, clock.now),
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
    key,
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

/** Adds what the content brings. What was changed since an earlier start, say who may read what, stays changed. */
async function fill(service: Service, content: Content): Promise<Library['users']> {
  const { accounts, catalogue, key } = service;
  for (const company of content.companies) accounts.bringCompany(company);
  for (const project of content.projects) await catalogue.addProject(project);
  for (const asset of content.assets) await catalogue.put(asset);
  // One after the other: the first user is the one that consents by itself.
  for (const { companies, ...user } of content.users) {
    if (!accounts.wasAdded(user.id)) await accounts.addUser(user, madeUpPassword(key, user.id));
    for (const id of companies) if (!accounts.isAccessSet(user.id, id)) await accounts.setAccess(user.id, id, true);
  }
  return content.users
    .filter(({ id }) => accounts.user(id))
    .map(({ companies: _, ...user }) => ({ ...user, password: madeUpPassword(key, user.id) }));
}

function addressOf(server: FastifyInstance): string {
  const { address, family, port } = server.server.address() as AddressInfo;
  if (address === '0.0.0.0' || address === '::') return `http://127.0.0.1:${port}`;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
