import { savedEncryptionKeys } from './config/secrets.ts';
import type { Context } from './context.ts';
import { startApplyingFilters } from './filters/apply-filters.ts';
import { longestRepeatedWait, longestWait } from './floor/errors.ts';
import { neverSent } from './floor/network-problem.ts';
import { dayMs } from './floor/units.ts';
import { openJobs } from './jobs.ts';
import type { MirrorDeps } from './mirror/deps.ts';
import { startExtendingLocks } from './mirror/extend-locks.ts';
import { startExpiring } from './mirror/removal/expire-versions.ts';
import { startRemoving } from './mirror/removal/start-removing.ts';
import { startSweeping } from './mirror/removal/sweep-uploads.ts';
import { startSearchingTranscripts } from './mirror/search-transcripts.ts';
import { checkSealed } from './oauth/reencrypt-tokens.ts';
import { createSealer } from './oauth/seal.ts';
import { createBucketBreaker, createLibraryBreaker } from './pacing/breakers.ts';
import { createBudget } from './pacing/byte-budget.ts';
import type { CircuitBreaker } from './pacing/circuit-breaker.ts';
import { createOutageDetector } from './pacing/outage.ts';
import type { Access } from './pacing/with-token.ts';
import { Dispatcher } from './queue/dispatcher.ts';
import { Leases } from './queue/leases.ts';
import { startPruning } from './queue/prune-records.ts';
import { openStorage } from './storage/open.ts';
import type { LongestWaits } from './store/database/correct-future.ts';
import type { SyncDeps } from './sync/deps.ts';
import { startDrills } from './verify/drill/run-drills.ts';
import { startWritingAuditLog } from './verify/publish/write-audit-log.ts';
import { startWritingChanges } from './verify/publish/write-changes.ts';
import { startVerifications } from './verify/run-verifications.ts';
import { startScrubbing } from './verify/scrub.ts';
import { longestWebhookWait, Webhooks } from './webhooks/deliver.ts';
import { startHeartbeat } from './webhooks/heartbeat.ts';

/** Bytes of parts of large files that are in flight at once in one process. They are streamed, not buffered. */
const bytesInFlight = 128 * 2 ** 20;

/** The last part of the shutdown grace, in which work is handed back. */
const handBackMs = 2000;

/** Starts taking jobs off the queues, and putting due work on them. */
export async function startWorkers(context: Context) {
  const { config, log, queues } = context;
  const stopping = new AbortController();
  const leases = new Leases(context);
  // While this process cannot reach the bucket or the library, it leaves the jobs to processes that can.
  const onChange = () => {
    const isOffline = libraryBreaker.openReason !== undefined;
    jobs.pause({ assets: isOffline || breaker.openReason !== undefined, syncs: isOffline });
    dispatcher.wake();
  };
  const breaker = createBucketBreaker({ ...context, onChange });
  const libraryBreaker = createLibraryBreaker({ ...context, onChange });
  const deps = { ...config, ...context, breaker };
  const { perConnection } = config.transfer;
  const longestWaits = longestWaitsOf(config);
  const dispatcher = new Dispatcher({ ...deps, intervals: config.sync, perConnection, longestWaits });
  context.limiter.afterPause(() => dispatcher.wake());
  const outages = createOutageDetector();
  const withToken: Access = (connectionId, call, options) =>
    outages
      .watch('api', () => context.withToken(connectionId, call, options), connectionId)
      .catch(async (error) => {
        if (neverSent(error) && (await libraryBreaker.check()) === undefined)
          await context.limiter.adaptTo(connectionId, error);
        throw error;
      });
  const mirror = mirrorDeps(context, { breaker, libraryBreaker, outages, withToken });

  const jobs = openJobs(context, {
    leases,
    mirror,
    sync: syncDeps(context, withToken, () => dispatcher.wake()),
    dispatcher,
    signal: stopping.signal,
  });
  const verifying = startVerifications({ ...deps, reconcileInterval: config.sync.reconcileInterval });
  const scrubbing = startScrubIfSet(context, breaker);
  const drills = startDrills({ ...deps, ...drillDeps(context), interval: config.drillInterval });
  const filtering = startApplyingFilters(deps);
  const pruning = startPruning(context);
  const locks = startExtendingLocks(deps);
  const removing = startRemoving(deps, {
    goneRetention: config.goneRetention,
    keyTemplate: config.storage.keyTemplate,
  });
  const webhooks = new Webhooks({ ...deps, sender: context.webhookSender, environment: config.webhook });
  const heartbeat = startHeartbeatIfSet(context, breaker);
  await Promise.all([breaker.check(), queues.ready()]);
  const sweeping = startSweeping(deps);
  const expiring = startExpiring(deps);
  const writingChanges = startWritingChanges(deps);
  const writingAuditLog = startWritingAuditLog(deps);
  const reading = startSearchingTranscripts(deps);
  jobs.run();

  return {
    clockSet: () => dispatcher.clockSet(),
    /** Takes no new work. Work that does not end within the grace is handed back without spending an attempt. */
    async stop(graceMs: number): Promise<void> {
      const started = performance.now();
      stopping.abort(new Error('shutting down'));
      libraryBreaker.stop();
      const verificationsStopped = Promise.all([verifying.stop(), scrubbing?.stop(), drills.stop()]);
      const beforeJobs = [dispatcher, filtering, sweeping, expiring, writingChanges, writingAuditLog, reading];
      await Promise.all(beforeJobs.map((each) => each.stop()));
      await jobs.drain(started + Math.max(0, graceMs - handBackMs));
      const afterJobs = [pruning, locks, removing, webhooks, heartbeat];
      await Promise.all(afterJobs.map((each) => each?.stop()));
      leases.close();
      await verificationsStopped;
      log.info({ event: 'worker.stopped', ms: Math.round(performance.now() - started) }, 'workers stopped');
    },
  };
}

/** Undefined: SCRUB_CYCLE is off. */
function startScrubIfSet(context: Context, breaker: CircuitBreaker) {
  const { config, metrics } = context;
  const { cycle, bandwidth } = config.scrub;
  if (cycle === undefined) return undefined;
  const onRead = (bytes: number) => metrics.scrubbedBytes.inc(bytes);
  return startScrubbing({ ...context, breaker, instance: config.instance, cycle, bandwidth, onRead });
}

/** Undefined: HEARTBEAT_URL is not set. */
function startHeartbeatIfSet(context: Context, breaker: CircuitBreaker) {
  const { heartbeatUrl: url, sync } = context.config;
  if (url === undefined) return undefined;
  return startHeartbeat({ ...context, url, syncInterval: sync.interval, bucketTrouble: breaker.check });
}

export function mirrorDeps(
  context: Context,
  own: Pick<MirrorDeps, 'breaker' | 'libraryBreaker' | 'outages' | 'withToken'>,
): MirrorDeps {
  const { config, downloader } = context;
  const { outages } = own;
  return {
    ...config,
    ...context,
    ...own,
    budget: createBudget(bytesInFlight),
    downloader: {
      ...downloader,
      open: (link, signal) => outages.watch('links', () => downloader.open(link, signal)),
      pin: (link, signal) => outages.watch('links', () => downloader.pin(link, signal)),
    },
    keyTemplate: config.storage.keyTemplate,
  };
}

function syncDeps(context: Context, withToken: Access, onWork: () => void): SyncDeps {
  const { config } = context;
  const kept = { transcripts: config.transcripts.mirror, thumbnails: config.thumbnails.mirror };
  return { ...config, ...context, ...kept, withToken, onWork, overlap: config.sync.overlap };
}

/** A drill uses none of this process's clients and keys: it reads the settings again, as a process that recovers would. */
const drillDeps = ({ config, store, log }: Context) => ({
  thumbnails: config.thumbnails,
  openBucket: () => openStorage(config.storage, { log }),
  async checkSecrets() {
    const keys = await savedEncryptionKeys(config);
    const noKey = () => {
      throw new Error('there is no encryption key: ENCRYPTION_KEYS is not set, and DATA_DIR/encryption-key is missing');
    };
    return checkSealed(store, keys.length > 0 ? createSealer(keys) : { open: noKey });
  },
});

/** How far ahead times are planned at most: the longest waits, each with up to a quarter of jitter. */
function longestWaitsOf({ processing, transcripts, sync, drillInterval, transfer }: Context['config']): LongestWaits {
  const retry = 1.25 * Math.max(longestWait, 2 * (transfer.minRate?.windowMs ?? 0));
  return {
    lease: 60_000,
    pause: retry,
    asset: Math.max(retry, longestRepeatedWait, processing.poll, transcripts.delay),
    transcript: transcripts.giveUp,
    delivery: longestWebhookWait * 1.25,
    chore: Math.max(dayMs, sync.reconcileInterval, drillInterval ?? 0),
  };
}
