import type { Config } from './config/config.ts';
import { openToOthers } from './config/preflight.ts';
import { savedEncryptionKeys } from './config/secrets.ts';
import { reasonOf } from './floor/errors.ts';
import { type Finding, findingsOn } from './floor/finding.ts';
import { createLog, type Log } from './floor/log.ts';
import { probePublicUrl } from './http/probe-public-url.ts';
import { probeProvider } from './http/sign-in/probe-provider.ts';
import { OAuthClient, OAuthError } from './oauth/client.ts';
import { createSealer } from './oauth/seal.ts';
import { Tokens } from './oauth/tokens.ts';
import { createAccess } from './pacing/with-token.ts';
import { probeQueue } from './queue/probe-queue.ts';
import { createLibraryAgents } from './source/agents.ts';
import { LibraryClient } from './source/client.ts';
import { fetchThrough } from './source/http.ts';
import { probeConnection, probeService } from './source/probe-library.ts';
import { assetTypes, unknownTypes } from './source/schemas.ts';
import { probeDirectory } from './storage/directory/probe-directory.ts';
import { probeS3 } from './storage/s3/probe/probe-s3.ts';
import { type DatabaseState, probeDatabase } from './store/database/probe-database.ts';
import type { Connection } from './store/database/schema.ts';
import { clusterExists } from './store/embedded/cluster.ts';
import { joinEmbeddedPostgres } from './store/embedded/embedded.ts';
import { openStore, type Store } from './store/store.ts';

/** `new`: there is no database yet. */
type State = DatabaseState | 'new';

interface Examining {
  config: Config;
  log: Log;
  open: AsyncDisposableStack;
  signal: AbortSignal;
}

/**
 * Checks everything that a mirror with this configuration depends on, in a process of its own, also while asset-mirror
 * runs. Removes its test objects. It may refresh a token, and saves which checksums the bucket supports.
 */
export async function* examine(config: Config, signal: AbortSignal): AsyncGenerator<Finding> {
  await using open = new AsyncDisposableStack();
  const at = { config, log: createLog({ level: 'silent', pretty: false }), open, signal };
  yield* await configuration(config);
  yield await probePublicUrl(config, signal);
  const { provider } = config.signIn;
  if (provider) yield await probeProvider(provider, { ...config, fetch: fetchThrough(config.proxies) });
  signal.throwIfAborted();
  const { store, state } = yield* examineDatabase(at);
  signal.throwIfAborted();
  yield* probeQueue({ redisUrl: config.redisUrl });
  signal.throwIfAborted();

  const { target, s3 } = config.storage;
  // Null: the database is unreachable, so the mirror id is not checked.
  const id = store ? await store.bucket.known() : state === 'new' ? undefined : null;
  if (target.kind === 'directory') yield* probeDirectory(target, id);
  else yield* stoppable(probeS3({ ...target, ...s3, connections: 4, memory: store?.checksumSupport }, id), signal);
  yield* examineLibrary(at, store, state);
}

async function* examineDatabase({
  config,
  log,
  open,
}: Examining): AsyncGenerator<Finding, { store?: Store; state: State }> {
  const { ok, wrong } = findingsOn('database');
  const what = 'PostgreSQL';
  const directory = config.dataDir;
  let url = config.databaseUrl;
  try {
    if (url === undefined && (await clusterExists(directory))) {
      url = open.adopt(await joinEmbeddedPostgres({ directory, log }), (embedded) => embedded.stop()).url;
    }
  } catch (error) {
    yield wrong(what, reasonOf(error), 'solve this problem, or set DATABASE_URL');
    return { state: 'unusable' };
  }
  if (url === undefined) {
    yield ok(what, 'none yet', 'the first start makes it');
    return { state: 'new' };
  }
  const state = yield* probeDatabase({ url });
  if (state !== 'up_to_date') return { state };
  return { store: open.adopt(await openStore({ url, log }), (store) => store.close()), state };
}

async function* examineLibrary(at: Examining, store: Store | undefined, state: State): AsyncGenerator<Finding> {
  const { config, log, open, signal } = at;
  const { apiUrl, appUrl, clientId, clientSecret } = config.library;
  const { allowPrivate } = config.transfer;
  const agents = open.adopt(
    createLibraryAgents({ apiUrl, appUrl, allowPrivate, proxies: config.proxies, connections: 4 }),
    (agents) => agents.destroy(),
  );
  const dispatcher = agents.api;
  const oauth = new OAuthClient({ apiUrl, clientId, clientSecret, dispatcher });
  const probe = { apiUrl, appUrl, dispatcher, signal };
  if (!(yield* stoppable(probeService({ ...probe, appAccepted: () => appAccepted(oauth) }), signal))) return;
  const connections = await store?.connections.list();
  const connection = connections?.find(({ status }) => status === 'active');
  if (!store || !connection) {
    yield withoutToken(state, connections ?? []);
    return;
  }
  const keys = await savedEncryptionKeys(config);
  if (keys.length === 0) {
    const found = `${config.dataDir}/encryption-key is missing, so no stored token can be decrypted`;
    yield findingsOn('library').wrong('token', found, 'put its backup there, or set ENCRYPTION_KEYS');
    return;
  }
  const sealer = createSealer(keys);
  const tokens = new Tokens({ store, client: oauth, sealer, log, instance: config.instance });
  // A refresh is never aborted: the library has rotated the token already.
  open.defer(() => tokens.end());
  const access = createAccess(tokens);
  const client = new LibraryClient({ apiUrl, dispatcher });
  const withToken = <T>(call: (token: string) => Promise<T>) => access(connection.id, call);
  const links = { guard: agents.guard, linkDispatcher: agents.links };
  yield* stoppable(probeConnection({ ...probe, ...links, connectionId: connection.id, client, withToken }), signal);
}

/** Why tokens and downloads are not tried: there is no active connection, or the database cannot be read. */
function withoutToken(state: State, connections: Pick<Connection, 'id' | 'status'>[]): Finding {
  const { note, wrong } = findingsOn('library');
  const finding = (level: typeof note, why: string, remedy: string) =>
    level('token', `${why}, so tokens and downloads were not tried`, `${remedy}, then run this again`);
  const unknown = 'the connections are unknown';
  if (state === 'behind') return finding(note, unknown, 'start asset-mirror, which updates the schema');
  if (state === 'unusable') return finding(note, unknown, 'solve the problem of the database above');
  const [one] = connections;
  if (!one) return finding(note, 'nothing is connected', 'asset-mirror connect-link');
  const paused = connections.find(({ status }) => status === 'paused');
  const command = paused ? `resume ${paused.id}` : `connect-link --connection ${one.id}`;
  return finding(wrong, 'all connections are paused or disconnected: all work is stopped', `asset-mirror ${command}`);
}

/** Ends a probe between two findings when `signal` is aborted; the probe then removes what it wrote. */
async function* stoppable<R>(findings: AsyncGenerator<Finding, R>, signal: AbortSignal): AsyncGenerator<Finding, R> {
  for (;;) {
    const next = await findings.next();
    if (next.done) return next.value;
    yield next.value;
    if (!signal.aborted) continue;
    await findings.return(undefined as R);
    throw signal.reason;
  }
}

/** Settings that are valid but will cause trouble. */
async function configuration(config: Config): Promise<Finding[]> {
  const { ok, wrong, ...make } = findingsOn('configuration');
  const { publicUrl, webhook, filters } = config;
  const local = (url: string) => /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(new URL(url).hostname);
  const plain = (url: string | undefined) => url?.startsWith('http:') && !local(url);
  const findings: Finding[] = [];
  const note = (what: string, found: string, remedy: string) => findings.push(make.note(what, found, remedy));
  // With DATABASE_URL, no secret is stored in DATA_DIR.
  const secrets = config.databaseUrl === undefined && (await openToOthers(config.dataDir).catch(() => undefined));
  if (secrets === 'theirs') {
    note('DATA_DIR', 'other accounts can read it, and it contains secrets', `chmod 700 ${config.dataDir}`);
  }
  if (plain(publicUrl)) {
    note(
      'PUBLIC_URL',
      publicUrl,
      'set an https address: the library refuses other redirect URIs, except for localhost',
    );
  }
  if (config.databaseUrl !== undefined && !config.signingKeys) {
    note(
      'SIGNING_KEY',
      'is not set, so inventories are not signed',
      'openssl rand -base64 32 makes a key: see docs/operate/proof.md',
    );
  }
  const { apiUrl } = config.library;
  const { endpoint } = config.storage.s3;
  const https = 'set an https address: with http, others on the network can read the requests';
  if (plain(apiUrl)) note('LIBRARY_API_URL', apiUrl, https);
  if (endpoint && plain(endpoint)) note('S3_ENDPOINT', endpoint, https);
  if (config.storage.target.kind === 'directory' && config.storage.s3.objectLock) {
    const remedy = 'set STORAGE_URL to a bucket with Object Lock, or remove S3_OBJECT_LOCK';
    findings.push(wrong('S3_OBJECT_LOCK', 'is set, but a directory locks nothing', remedy));
  }
  if (plain(webhook.url)) {
    const remedy = 'set an https address: with http, others can read the messages, which contain links to reconnect';
    note('WEBHOOK_URL', 'is not https', remedy);
  }
  const included = unknownTypes(filters.includeTypes);
  const none = included.length > 0 && included.length === filters.includeTypes.length;
  const remedy = `the types are ${assetTypes.join(', ')}`;
  if (included.length > 0) {
    const found = `${included.join(', ')}: the library names no such type${none ? ', so nothing is mirrored' : ''}`;
    if (none) findings.push(wrong('INCLUDE_ASSET_TYPES', found, remedy));
    else note('INCLUDE_ASSET_TYPES', found, remedy);
  }
  const excluded = unknownTypes(filters.excludeTypes).join(', ');
  if (excluded) note('EXCLUDE_ASSET_TYPES', `${excluded}: the library names no such type`, remedy);
  for (const { name, similar } of config.misspelled) note(name, 'is not a setting', `did you mean ${similar}?`);
  return findings.length > 0 ? findings : [ok('settings', 'are complete and fit together')];
}

/** Sends an invalid refresh token: the answer tells whether the token or the app is refused. */
async function appAccepted(oauth: OAuthClient): Promise<boolean> {
  try {
    await oauth.refresh('svcr_doctor');
    return true;
  } catch (error) {
    if (!(error instanceof OAuthError)) throw error;
    if (error.invalidGrant) return true;
    if (error.status === 401 || error.code === 'invalid_client') return false;
    throw error;
  }
}
