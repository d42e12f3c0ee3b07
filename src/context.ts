import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import type { Config } from './config/config.ts';
import { adminTokenIn, encryptionKeyIn } from './config/secrets.ts';
import { fieldsHere, type Log } from './log.ts';
import { createMetrics } from './metrics/metrics.ts';
import { createOAuthClient } from './oauth/client.ts';
import { createSealer } from './oauth/seal.ts';
import { createTokens } from './oauth/tokens.ts';
import { createOperations } from './operations/operations.ts';
import { watchBucket } from './operations/watch-bucket.ts';
import { Limiter } from './pacing/adaptive-concurrency.ts';
import { followBandwidth } from './pacing/follow-bandwidth.ts';
import { createAccess } from './pacing/with-token.ts';
import { openQueues } from './queue/queues.ts';
import { createSchedule } from './queue/scheduler.ts';
import { createLines, createTraffic } from './source/bandwidth.ts';
import { createLibraryClient } from './source/client.ts';
import { createDownloader } from './source/download.ts';
import { createAgent } from './source/http.ts';
import { guardLinks } from './source/links.ts';
import { assetTypes, unknownTypes } from './source/schemas.ts';
import { watchRequests } from './source/watch-requests.ts';
import { identified } from './storage/mirror-id.ts';
import { openStorage } from './storage/open.ts';
import { startEmbeddedPostgres } from './store/embedded/embedded.ts';
import { openStore } from './store/store.ts';
import { version } from './version.ts';
import { createWebhookSender } from './webhooks/sender.ts';
import { startWorkers, type Workers } from './workers.ts';

export type Context = Awaited<ReturnType<typeof openContext>>;

/** The composition root: opens everything in order; `close` closes it in reverse. `signal` stops the slow steps. */
export async function openContext(config: Config, log: Log, signal?: AbortSignal) {
  await using opening = new AsyncDisposableStack();

  const keys = config.encryptionKeys ?? [Buffer.from((await encryptionKeyIn(config.dataDir)).value, 'base64')];
  const sealer = createSealer(keys);
  const admin = config.adminToken ? { value: config.adminToken, made: false } : await adminTokenIn(config.dataDir);

  let databaseUrl = config.databaseUrl;
  if (databaseUrl === undefined) {
    const embedded = await startEmbeddedPostgres({ directory: config.dataDir, log });
    opening.defer(() => embedded.stop());
    databaseUrl = embedded.url;
  }
  signal?.throwIfAborted();
  const store = await openStore({ url: databaseUrl, log });
  opening.defer(() => store.close());
  signal?.throwIfAborted();

  const installation = await store.settings.installation();
  const queues = openQueues({ redisUrl: config.redisUrl, databaseUrl, installation, log });
  opening.defer(() => queues.close());
  await queues.ready();

  const connections = config.transfer.concurrency * 5 + 8;
  const objects = await openStorage(config.storage, { connections, memory: store.bucket, log });
  const storage = identified(objects, store.bucket.id, { onWrong: store.verifications.requestRoutine });
  opening.defer(() => storage.close());

  // Sockets for a transfer, its details and its thumbnail each, and for the syncs.
  const forSource = { connections: config.transfer.concurrency * 6 + 20, proxies: config.proxies };
  const agent = createAgent(forSource);
  opening.defer(() => agent.destroy());
  const { apiUrl, appUrl, clientId, clientSecret } = config.library;
  const guard = guardLinks({ apiUrl, appUrl, allowPrivate: config.transfer.allowPrivate });
  const downloads = createAgent({ ...forSource, lookup: guard.lookup });
  opening.defer(() => downloads.destroy());
  const metrics = createMetrics();
  const watched = watchRequests(apiUrl, () => {
    // The log fields of the caller: the callback below runs outside its context.
    const work = fieldsHere();
    const libraryRequestId = randomUUID();
    return ({ endpoint, status, ms }) => {
      metrics.libraryRequests.inc({ endpoint, status });
      log.debug({ ...work, libraryRequestId, endpoint, status, ms }, 'library asked');
    };
  });
  const dispatcher = agent.compose(watched);
  const client = createLibraryClient({ apiUrl, dispatcher });
  const traffic = createTraffic(config.transfer.bandwidth);
  const lines = createLines();
  opening.defer(followBandwidth({ store, traffic, lines, own: config.transfer.bandwidth, log }));
  const downloader = createDownloader({
    referer: appUrl,
    dispatcher: downloads.compose(watched),
    guard,
    stallMs: config.transfer.stallTimeout,
    minRate: config.transfer.minRate,
    throttle(bytes, signal) {
      metrics.bytes.inc(bytes);
      return traffic.take(bytes, signal);
    },
    onResumed: (bytes) => metrics.resumedBytes.inc(bytes),
  });
  const oauth = createOAuthClient({ apiUrl, clientId, clientSecret, dispatcher });
  const tokens = createTokens({
    store,
    client: oauth,
    sealer,
    log,
    instance: config.instance,
    onRefresh: (result) => metrics.tokenRefreshes.inc({ result }),
  });
  opening.defer(() => tokens.settled());

  const { includeTypes, excludeTypes } = config.sync;
  for (const type of unknownTypes([...includeTypes, ...excludeTypes])) {
    log.warn({ type, known: assetTypes.join(', ') }, 'a type to include or exclude that the service does not name');
  }
  if (await store.filters.changeDefaults(config.sync)) {
    log.info(
      { includeTypes, excludeTypes },
      'what the environment selects has changed; all assets are held against it',
    );
  }
  const schedule = createSchedule({
    store,
    queues,
    log,
    interval: config.sync.interval,
    reconcileInterval: config.sync.reconcileInterval,
  });
  const operations = createOperations({
    store,
    queues,
    schedule,
    sealer,
    bucketTrouble: watchBucket(storage.check),
    traffic: traffic.bytesPerSecond,
    tokens,
    ownBandwidth: config.transfer.bandwidth,
    publicUrl: config.publicUrl,
    perConnection: config.transfer.perConnection,
    syncInterval: config.sync.interval,
    filters: config.sync,
    log,
    client,
    access: createAccess(tokens, new Limiter({ store, log, perConnection: config.transfer.perConnection }), client),
    transcripts: config.transcripts.mirror,
    thumbnails: config.thumbnails.mirror,
  });

  function webhookDeps() {
    const { url, keys = [], events: kinds, allowPrivate } = config.webhook;
    if (url === undefined) return undefined;
    const sender = createWebhookSender({ url, keys, allowPrivate, version });
    return { store, sender, sealer, publicUrl: config.publicUrl, kinds, metrics, log };
  }

  const stack = opening.move();
  return {
    config,
    log,
    metrics,
    store,
    queues,
    storage,
    sealer,
    client,
    oauth,
    tokens,
    schedule,
    operations,
    adminToken: admin.value,
    /** The token was just generated: show it once. */
    adminTokenIsNew: admin.made,
    adminTokenFile: join(config.dataDir, 'admin-token'),

    startWorkers(): Promise<Workers> {
      return startWorkers({
        mirror: {
          store,
          storage,
          client,
          downloader,
          log,
          metrics,
          keyTemplate: config.storage.keyTemplate,
          tellMirrored: config.webhook.url !== undefined && config.webhook.events.includes('asset.mirrored'),
          filters: config.sync,
          lines,
          processing: config.processing,
          transcripts: config.transcripts,
          thumbnails: config.thumbnails,
        },
        sync: {
          store,
          client,
          log,
          instance: config.instance,
          ...config.sync,
          transcripts: config.transcripts.mirror,
          thumbnails: config.thumbnails.mirror,
        },
        queues,
        schedule,
        tokens,
        log,
        concurrency: config.transfer.concurrency,
        perConnection: config.transfer.perConnection,
        reconcileInterval: config.sync.reconcileInterval,
        webhooks: webhookDeps(),
      });
    },

    close: () => stack.disposeAsync(),
  };
}
