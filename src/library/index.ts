import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { Accounts } from './accounts.ts';
import { createAdmin } from './admin/admin.ts';
import { registerApi } from './api/api.ts';
import { registerMedia } from './api/media.ts';
import { Catalogue } from './catalogue.ts';
import { Clock } from './clock.ts';
import type { Content, ContentOption } from './content/content.ts';
import { loadContent } from './content/load.ts';
import { openDatabase } from './database/postgres.ts';
import { Store } from './database/store.ts';
import { Faults } from './faults/rules.ts';
import type { User } from './model.ts';
import { Connections } from './oauth/connections.ts';
import { type OwnApp, registerOwnApp } from './oauth/registrations.ts';
import { registerTokens } from './oauth/tokens.ts';
import { registerPages } from './pages/register.ts';
import { RequestLog } from './requests.ts';
import { derivedPassword, newSecret } from './secrets.ts';
import { createServer } from './server.ts';
import type { Service, Settings } from './service.ts';

export { bytesOf, chunksOf } from './content/bytes.ts';

export type LibraryOptions = Partial<Settings> &
  OwnApp & {
    host?: string;
    /** 0: any free port. */
    port?: number;
    /** Starts the admin API. 0: any free port. */
    adminPort?: number;
    /** The address that users and apps use, if it is not the one that the server listens on. */
    publicUrl?: string;
    /** The PostgreSQL database, in whose schema `library` data is stored. Without it, data is kept in memory only. */
    databaseUrl?: string;
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
  /** About how many bytes of generated content it serves. */
  bytes?: number;
  close(): Promise<void>;
};

/** The secret is returned once (section 2.1): null if an earlier start has returned it. */
export type KeptLibrary = Omit<Library, 'clientSecret'> & { clientSecret: string | null };

/** Starts the service of the specification with one registered app. */
export async function startLibrary(options: LibraryOptions & { databaseUrl?: never }): Promise<Library>;
export async function startLibrary(options: LibraryOptions): Promise<KeptLibrary>;
export async function startLibrary(options: LibraryOptions): Promise<KeptLibrary> {
  const { host = '127.0.0.1', port = 0, adminPort, databaseUrl, log = () => {} } = options;
  const { transcodeDelay = 5000, transcriptDelay = 20_000 } = options;
  const clock = new Clock();

  await using starting = new AsyncDisposableStack();
  const store = await Store.open(databaseUrl === undefined ? undefined : await openDatabase(databaseUrl, log));
  starting.defer(() => store.close());
  const delays = { transcode: transcodeDelay, transcript: transcriptDelay };
  const content = await loadContent(options.content, { now: () => clock.now(), delays, store, log });
  starting.defer(async () => content.close?.());
  const service = await createService(options, clock, store, content);
  const { clientId, clientSecret } = await registerOwnApp(service, options);
  const users = await addContent(service, content);

  const server = createServer(service);
  registerApi(server, service);
  registerMedia(server, service);
  registerTokens(server, service);
  registerPages(server, service);
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
    ...(content.bytes !== undefined && { bytes: content.bytes }),
    close: () => running.disposeAsync(),
  };
}

async function createService(
  options: LibraryOptions,
  clock: Clock,
  store: Store,
  { sources }: Content,
): Promise<Service> {
  const { autoConsent = false, log = () => {} } = options;
  // Unlike content, uploads through the admin API are ready at once unless a delay is set.
  const { transcodeDelay = 0, transcriptDelay = 0 } = options;
  return {
    clock,
    store,
    accounts: new Accounts(store),
    connections: new Connections(store, () => clock.now()),
    catalogue: new Catalogue(sources),
    faults: new Faults(),
    requests: new RequestLog(options.adminPort !== undefined),
    settings: { autoConsent, transcodeDelay, transcriptDelay },
    key: await store.setting('key', newSecret),
    addresses: { api: '', app: '' },
    log,
  };
}

/** Adds the content. Users and access rights that were changed since an earlier start stay as they are. */
async function addContent({ accounts, catalogue, key }: Service, content: Content): Promise<Library['users']> {
  for (const company of content.companies) accounts.addContentCompany(company);
  for (const project of content.projects) catalogue.addProject(project);
  for (const asset of content.assets) catalogue.put(asset);
  // In this order: the first user is the one that autoConsent uses.
  for (const { companies, ...user } of content.users) {
    if (!accounts.wasAdded(user.id)) await accounts.addUser(user, derivedPassword(key, user.id));
    for (const id of companies) if (!accounts.isAccessSet(user.id, id)) await accounts.setAccess(user.id, id, true);
  }
  return content.users
    .filter(({ id }) => accounts.user(id))
    .map(({ companies: _, ...user }) => ({ ...user, password: derivedPassword(key, user.id) }));
}

function addressOf(server: FastifyInstance): string {
  const { address, family, port } = server.server.address() as AddressInfo;
  if (address === '0.0.0.0' || address === '::') return `http://127.0.0.1:${port}`;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
