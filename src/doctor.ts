import type { Config } from './config/config.ts';
import { openToOthers } from './config/preflight.ts';
import { encryptionKeyIn } from './config/secrets.ts';
import { reasonOf } from './errors.ts';
import type { Finding } from './finding.ts';
import { createLog } from './log.ts';
import { OAuthClient, OAuthError } from './oauth/client.ts';
import { createSealer } from './oauth/seal.ts';
import { Tokens } from './oauth/tokens.ts';
import { createAccess } from './pacing/with-token.ts';
import { probeQueue } from './queue/probe-queue.ts';
import { createLibraryClient } from './source/client.ts';
import { createAgent } from './source/http.ts';
import { probeConnection, probeService } from './source/probe-library.ts';
import { assetTypes, unknownTypes } from './source/schemas.ts';
import { probeDirectory } from './storage/directory/probe.ts';
import { probeS3 } from './storage/s3/probe.ts';
import { probeDatabase } from './store/database/probe-database.ts';
import { clusterExists } from './store/embedded/cluster.ts';
import { joinEmbeddedPostgres } from './store/embedded/embedded.ts';
import { openStore, type Store } from './store/store.ts';

/**
 * Looks at everything that a mirror with this configuration rests on, in a process of its own and beside a running service
 * if there is one. Changes nothing: what is written to try something is removed again.
 */
export async function* examine(config: Config, signal: AbortSignal): AsyncGenerator<Finding> {
  const log = createLog({ level: 'silent', pretty: false });
  await using open = new AsyncDisposableStack();
  yield* configuration(config);

  let store: Store | undefined;
  const url = await databaseUrl();
  if (url === undefined) {
    yield { area: 'database', what: 'PostgreSQL', found: 'none yet', chosen: 'made by the first start', level: 'ok' };
  } else if (typeof url !== 'string') yield url;
  else if (yield* probeDatabase({ url })) {
    store = await openStore({ url, log });
    open.defer(() => store!.close());
  }
  signal.throwIfAborted();
  yield* probeQueue({ redisUrl: config.redisUrl });
  signal.throwIfAborted();

  const { target, s3 } = config.storage;
  // Of records that cannot be asked nothing is said here, rather than that they are new.
  const id = store ? await store.bucket.known() : url === undefined ? undefined : null;
  if (target.kind === 'directory') yield* probeDirectory(target, id);
  else yield* stoppable(probeS3({ ...target, ...s3, connections: 4, memory: store?.bucket }, id));

  const { apiUrl, appUrl, clientId, clientSecret } = config.library;
  const dispatcher = createAgent({ connections: 4, proxies: config.proxies });
  open.defer(() => dispatcher.destroy());
  const oauth = new OAuthClient({ apiUrl, clientId, clientSecret, dispatcher });
  const probe = { apiUrl, appUrl, dispatcher, signal };
  if (!(yield* stoppable(probeService({ ...probe, appAccepted: () => appAccepted(oauth) })))) return;
  const connection = (await store?.connections.list())?.find(({ status }) => status === 'active');
  if (!store || !connection) {
    const known = store !== undefined || url === undefined;
    yield {
      area: 'library',
      what: 'token',
      found: `${known ? 'nothing is connected' : 'who is connected is not known'}, so tokens and downloads were not tried`,
      remedy: known ? 'asset-mirror connect-link, then this again' : 'mend the database, then this again',
      level: 'note',
    };
    return;
  }
  const keys = config.encryptionKeys ?? [Buffer.from((await encryptionKeyIn(config.dataDir)).value, 'base64')];
  const tokens = new Tokens({ store, client: oauth, sealer: createSealer(keys), log, instance: config.instance });
  // A refresh is never broken off: the service has rotated the token already.
  open.defer(() => tokens.settled());
  const access = createAccess(tokens);
  yield* stoppable(
    probeConnection({
      ...probe,
      connectionId: connection.id,
      client: createLibraryClient({ apiUrl, dispatcher }),
      withToken: (call) => access(connection.id, call),
    }),
  );

  /** A stop between two findings ends the probe, which cleans up behind itself. */
  async function* stoppable<R>(findings: AsyncGenerator<Finding, R>): AsyncGenerator<Finding, R> {
    for (;;) {
      const next = await findings.next();
      if (next.done) return next.value;
      yield next.value;
      if (!signal.aborted) continue;
      await findings.return(undefined as R);
      throw signal.reason;
    }
  }

  /** That of the embedded one, too, running or not; undefined when there is none yet, a finding when it does not start. */
  async function databaseUrl(): Promise<string | Finding | undefined> {
    if (config.databaseUrl !== undefined) return config.databaseUrl;
    const directory = config.dataDir;
    try {
      if (!(await clusterExists(directory))) return undefined;
      const embedded = await joinEmbeddedPostgres({ directory, log });
      open.defer(() => embedded.stop());
      return embedded.url;
    } catch (error) {
      const remedy = 'see what it says, or set DATABASE_URL';
      return { area: 'database', what: 'PostgreSQL', found: reasonOf(error), remedy, level: 'wrong' };
    }
  }
}

/** What is allowed, and will not go well. What is not allowed never gets here. */
async function* configuration(config: Config): AsyncGenerator<Finding> {
  const area = 'configuration' as const;
  const local = (url: string) => /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(new URL(url).hostname);
  const plain = (url: string) => url.startsWith('http:') && !local(url);
  let notes = 0;
  const note = (what: string, found: string, remedy: string): Finding => {
    notes++;
    return { area, what, found, remedy, level: 'note' };
  };
  // With DATABASE_URL no secret is made there.
  const secrets = config.databaseUrl === undefined && (await openToOthers(config.dataDir).catch(() => undefined));
  if (secrets === 'theirs') {
    yield note('DATA_DIR', 'other accounts may enter it, and it holds secrets', `chmod 700 ${config.dataDir}`);
  }
  if (plain(config.publicUrl)) {
    yield note('PUBLIC_URL', config.publicUrl, 'https: the service takes no other redirect URI, but for localhost');
  }
  for (const [what, url] of [
    ['LIBRARY_API_URL', config.library.apiUrl],
    ['S3_ENDPOINT', config.storage.s3.endpoint],
  ] as const) {
    if (url && plain(url)) yield note(what, url, 'https: what is sent there can be read on the way');
  }
  if (config.webhook.url && plain(config.webhook.url)) {
    yield note(
      'WEBHOOK_URL',
      'is not https',
      'https: what is sent there, links to reconnect among it, can be read on the way',
    );
  }
  for (const [what, types] of [
    ['INCLUDE_ASSET_TYPES', config.sync.includeTypes],
    ['EXCLUDE_ASSET_TYPES', config.sync.excludeTypes],
  ] as const) {
    const unknown = unknownTypes(types);
    if (unknown.length === 0) continue;
    const remedy = `the types are ${assetTypes.join(', ')}`;
    const nothing = what === 'INCLUDE_ASSET_TYPES' && unknown.length === types.length;
    const found = `${unknown.join(', ')}: the service names no such type${nothing ? ', so nothing is mirrored' : ''}`;
    yield { ...note(what, found, remedy), level: nothing ? 'wrong' : 'note' };
  }
  if (config.transfer.perConnection > config.transfer.concurrency) {
    const { perConnection, concurrency } = config.transfer;
    const found = `is ${perConnection}, and TRANSFER_CONCURRENCY ${concurrency}`;
    yield note('CONNECTION_CONCURRENCY', found, 'make it smaller, or one connection can keep all others waiting');
  }
  if (notes === 0) yield { area, what: 'settings', found: 'are complete and fit together', level: 'ok' };
}

/** By a refresh token that nobody has: an app that is known is told that the token is wrong, another that the app is. */
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
