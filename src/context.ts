import type { Config } from './config/config.ts';
import { adminTokenOf, encryptionKeys, signingKeysOf } from './config/secrets.ts';
import { bandwidthAt } from './floor/bandwidth-limit.ts';
import type { Log } from './floor/log.ts';
import { defaultTimings, type Timings } from './floor/timings.ts';
import { recordRequest } from './metrics/library-requests.ts';
import { createMetrics, type Metrics } from './metrics/metrics.ts';
import { OAuthClient } from './oauth/client.ts';
import type { RefreshResult } from './oauth/refresh.ts';
import { createSealer } from './oauth/seal.ts';
import { Tokens } from './oauth/tokens.ts';
import { createOperations } from './operations/operations.ts';
import { createPermissions } from './operations/operators/permissions.ts';
import { watchBucket } from './operations/status/watch-bucket.ts';
import { Limiter } from './pacing/adaptive-concurrency.ts';
import { followBandwidth } from './pacing/follow-bandwidth.ts';
import { createAccess } from './pacing/with-token.ts';
import { Queues } from './queue/queues.ts';
import { connectionsFor, createLibraryAgents } from './source/agents.ts';
import { createConnectionThrottles, createTraffic } from './source/bandwidth.ts';
import { LibraryClient } from './source/client.ts';
import { createDownloader } from './source/download.ts';
import { watchRequests } from './source/watch-requests.ts';
import { withMirrorIdCheck } from './storage/mirror-id.ts';
import { openStorage } from './storage/open.ts';
import { startEmbeddedPostgres } from './store/embedded/embedded.ts';
import { openStore } from './store/store.ts';
import { createWebhookSender, sendTest } from './webhooks/sender.ts';
import { targetOf } from './webhooks/target.ts';

export type Context = Awaited<ReturnType<typeof openContext>>;

export interface ContextOptions {
  /** Stops the slow steps. */
  signal?: AbortSignal;
  timings?: Partial<Timings>;
}

/** The composition root: opens everything in order; `close` closes it in reverse. */
export async function openContext(config: Config, log: Log, { signal, timings: changed }: ContextOptions = {}) {
  await using opening = new AsyncDisposableStack();
  const timings = { ...defaultTimings, ...changed };
  const metrics = createMetrics();
  const sealer = createSealer(await encryptionKeys(config));
  const adminToken = await adminTokenOf(config);
  const { signingKeys, signingKeyMade } = await signingKeysOf(config);

  const stores = await openStores(config, { log, timings, opening, signal });
  const { store, storage } = stores;
  const library = openLibrary(config, { metrics, log, opening });
  const { client, oauth, traffic } = library;
  const { transfer, instance } = config;
  opening.defer(followBandwidth({ ...library, store, own: transfer.bandwidth, log }));

  const onRefresh = (result: RefreshResult) => metrics.tokenRefreshes.inc({ result });
  const tokens = new Tokens({ store, client: oauth, sealer, log, instance, onRefresh });
  opening.defer(() => tokens.end());
  const limiter = new Limiter({ store, log, perConnection: transfer.perConnection });
  const withToken = createAccess(tokens, limiter, client);
  const webhookSender = opening.adopt(createWebhookSender(config.webhook), (sender) => sender.close());
  const permissions = createPermissions(config.signIn);
  const operations = createOperations({
    ...config,
    ...stores,
    signingKeys,
    permissions,
    sealer,
    tokens,
    client,
    withToken,
    sendTestWebhook: (endpoint) => sendTest(webhookSender, targetOf(endpoint, { sealer, environment: config.webhook })),
    log,
    bucketTrouble: watchBucket(storage.check),
    traffic: traffic.bytesPerSecond,
  });

  const stack = opening.move();
  return {
    ...stores,
    ...library,
    config,
    log,
    timings,
    metrics,
    sealer,
    signingKeys,
    signingKeyMade,
    tokens,
    limiter,
    withToken,
    webhookSender,
    operations,
    permissions,
    adminToken,
    close: () => stack.disposeAsync(),
  };
}

/** Opens the database, the queues and the bucket. */
async function openStores(
  config: Config,
  deps: { log: Log; timings: Timings; opening: AsyncDisposableStack; signal: AbortSignal | undefined },
) {
  const { log, timings, opening, signal } = deps;
  const databaseUrl =
    config.databaseUrl ??
    opening.adopt(await startEmbeddedPostgres({ directory: config.dataDir, log }), (embedded) => embedded.stop()).url;
  signal?.throwIfAborted();
  const store = opening.adopt(await openStore({ url: databaseUrl, log }), (store) => store.close());
  signal?.throwIfAborted();
  const installation = await store.settings.installation();
  const queues = opening.adopt(
    new Queues({ redisUrl: config.redisUrl, databaseUrl, installation, timings, log }),
    (queues) => queues.close(),
  );
  await queues.ready();

  const { concurrency } = config.transfer;
  const objects = await openStorage(config.storage, { concurrency, memory: store.checksumSupport, log });
  const storage = opening.adopt(
    withMirrorIdCheck(objects, store.bucket.id, { onWrong: store.verifications.requestScheduled }),
    (storage) => storage.close(),
  );
  return { store, queues, storage };
}

/** Opens the clients of the library: for its API, its token endpoint and its signed links. */
function openLibrary(config: Config, deps: { metrics: Metrics; log: Log; opening: AsyncDisposableStack }) {
  const { metrics, log, opening } = deps;
  const { apiUrl, appUrl, clientId, clientSecret } = config.library;
  const { allowPrivate, concurrency } = config.transfer;
  const connections = connectionsFor(concurrency);
  const agents = opening.adopt(
    createLibraryAgents({ apiUrl, appUrl, allowPrivate, proxies: config.proxies, connections }),
    (agents) => agents.destroy(),
  );
  const watched = watchRequests(apiUrl, () => recordRequest(metrics, log));
  const dispatcher = agents.api.compose(watched);
  const traffic = createTraffic(bandwidthAt(config.transfer.bandwidth), (bytes) => metrics.bytes.inc(bytes));
  const downloader = createDownloader({
    referer: appUrl,
    dispatcher: agents.links.compose(watched),
    guard: agents.guard,
    stallMs: config.transfer.stallTimeout,
    minRate: config.transfer.minRate,
    throttle: traffic.take,
    onResumed: (bytes) => metrics.resumedBytes.inc(bytes),
  });
  return {
    client: new LibraryClient({ apiUrl, dispatcher }),
    oauth: new OAuthClient({ apiUrl, clientId, clientSecret, dispatcher }),
    downloader,
    traffic,
    throttles: createConnectionThrottles(),
  };
}
