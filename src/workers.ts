import { setTimeout as sleep } from 'node:timers/promises';
import { savedEncryptionKeys } from './config/secrets.ts';
import type { Context } from './context.ts';
import { startApplyingFilters } from './filters/apply-filters.ts';
import { longestWait } from './floor/errors.ts';
import { withFields } from './floor/log.ts';
import { because, renderReason } from './floor/reasons.ts';
import { formatDuration } from './floor/units.ts';
import type { MirrorDeps } from './mirror/deps.ts';
import { startExtendingLocks } from './mirror/extend-locks.ts';
import { followUp } from './mirror/follow-up.ts';
import { mirrorAsset } from './mirror/mirror-asset.ts';
import { startRemoving } from './mirror/removal/start-removing.ts';
import { type Outcome, resultOf } from './mirror/retry-or-fail.ts';
import { startSearchingTranscripts } from './mirror/search-transcripts.ts';
import { checkSealed } from './oauth/reencrypt-tokens.ts';
import { createSealer } from './oauth/seal.ts';
import { createBudget } from './pacing/byte-budget.ts';
import { createCircuitBreaker } from './pacing/circuit-breaker.ts';
import { createOutageDetector } from './pacing/outage.ts';
import type { Access } from './pacing/with-token.ts';
import { Dispatcher } from './queue/dispatcher.ts';
import { type LeasedAsset, Leases } from './queue/leases.ts';
import { startPruning } from './queue/prune-records.ts';
import type { AssetJob, SyncJob } from './queue/queues.ts';
import { openStorage } from './storage/open.ts';
import type { Horizon } from './store/database/correct-future.ts';
import type { SyncDeps } from './sync/deps.ts';
import { runSyncs } from './sync/run-syncs.ts';
import { span } from './tracing/tracing.ts';
import { startDrills } from './verify/drill/scheduled-drills.ts';
import { startExpiring } from './verify/expire-versions.ts';
import { startWritingAuditLog } from './verify/publish/write-audit-log.ts';
import { startWritingChanges } from './verify/publish/write-changes.ts';
import { startScheduledVerification } from './verify/scheduled.ts';
import { startScrubbing } from './verify/scrub.ts';
import { startSweeping } from './verify/sweep-uploads.ts';
import { longestWebhookWait, Webhooks } from './webhooks/deliver.ts';
import { startHeartbeat } from './webhooks/heartbeat.ts';

/** Syncs that run at once in one process. They mostly wait for the library. */
const syncConcurrency = 10;

/** Bytes of parts of large files that are in flight at once in one process. They are streamed, not buffered. */
const bytesInFlight = 128 * 2 ** 20;

/** The last part of the shutdown grace, in which work is handed back. */
const handBackMs = 2000;

/** Starts taking jobs off the queues, and putting due work on them. */
export async function startWorkers(context: Context) {
  const { config, log, storage, queues, timings, tokens, metrics } = context;
  const stopping = new AbortController();
  const leases = new Leases(context);
  const breaker = createCircuitBreaker({ storage, log, timings, onClose: () => dispatcher.wake() });
  const { instance, transfer, keepVersions, goneRetention, sync: filters } = config;
  const { perConnection } = transfer;
  const horizon = horizonOf(config);
  const dispatcher = new Dispatcher({ ...context, breaker, perConnection, horizon });
  context.limiter.afterPause(() => dispatcher.wake());
  const outages = createOutageDetector();
  const withToken: Access = (connectionId, call, options) =>
    outages.watch('api', () => context.withToken(connectionId, call, options), connectionId);
  const mirror = mirrorDeps(context, { leases, breaker, outages, withToken });
  const sync = syncDeps(context, withToken, () => dispatcher.wake());

  const jobs = openJobs(context, { mirror, sync, dispatcher, signal: stopping.signal });
  const scheduled = startScheduledVerification({
    ...context,
    instance,
    keepVersions,
    goneRetention,
    reconcileInterval: filters.reconcileInterval,
  });
  const { cycle, bandwidth } = config.scrub;
  const scrubbing =
    cycle === undefined
      ? undefined
      : startScrubbing({
          ...context,
          breaker,
          instance,
          cycle,
          bandwidth,
          onRead: (bytes) => metrics.scrubbedBytes.inc(bytes),
        });
  const drills = startDrills({ ...context, ...drillDeps(context), breaker, instance, interval: config.drillInterval });
  const filtering = startApplyingFilters({ ...context, filters });
  const pruning = startPruning(context);
  const locks = startExtendingLocks(context);
  const removing = startRemoving(context, goneRetention);
  const webhooks = new Webhooks({
    ...context,
    sender: context.webhookSender,
    environment: config.webhook,
    publicUrl: config.publicUrl,
  });
  const heartbeat =
    config.heartbeatUrl === undefined
      ? undefined
      : startHeartbeat({
          ...context,
          url: config.heartbeatUrl,
          syncInterval: filters.interval,
          bucketTrouble: () => breaker.openReason,
        });
  await Promise.all([breaker.check(), queues.ready()]);
  const sweeping = startSweeping({ ...context, breaker });
  const expiring = startExpiring({ ...context, breaker });
  const writingChanges = startWritingChanges({ ...context, breaker });
  const writingAuditLog = startWritingAuditLog({ ...context, breaker });
  const reading = startSearchingTranscripts({ ...context, breaker });
  jobs.run();

  return {
    clockSet: () => dispatcher.clockSet(),
    /** Takes no new work. Work that does not end within the grace is handed back without spending an attempt. */
    async stop(graceMs: number): Promise<void> {
      const started = performance.now();
      stopping.abort(new Error('shutting down'));
      const verified = Promise.all([scheduled.stop(), scrubbing?.stop(), drills.stop()]);
      await Promise.all([
        ...[dispatcher.stop(), filtering.stop(), sweeping.stop(), expiring.stop()],
        ...[writingChanges.stop(), writingAuditLog.stop(), reading.stop()],
      ]);
      await jobs.drain(started + Math.max(0, graceMs - handBackMs));
      await tokens.settled();
      await Promise.all([pruning.stop(), locks?.stop(), removing.stop(), webhooks.stop(), heartbeat?.stop()]);
      await breaker.stop();
      await leases.close();
      await verified;
      log.info({ event: 'worker.stopped', ms: Math.round(performance.now() - started) }, 'workers stopped');
    },
  };
}

/** The BullMQ workers of both queues. `signal`: the process stops. */
function openJobs(
  { config, queues, limiter, log }: Context,
  at: { mirror: MirrorDeps; sync: SyncDeps; dispatcher: Dispatcher; signal: AbortSignal },
) {
  const { leases } = at.mirror;
  let running = 0;
  /** Counts the jobs that this process works on. */
  const counted =
    <T, R>(work: (job: T) => Promise<R>) =>
    async (job: T): Promise<R> => {
      running++;
      try {
        return await work(job);
      } finally {
        running--;
      }
    };
  const workers = [
    queues.worker<AssetJob>(
      'assets',
      counted((job) => assetJob(at.mirror, at.dispatcher, job)),
      { concurrency: config.transfer.concurrency },
    ),
    queues.worker<SyncJob>(
      'syncs',
      counted(({ data }) => runSyncs(at.sync, data.connectionId, at.signal, data.mode)),
      { concurrency: syncConcurrency },
    ),
  ];

  return {
    run(): void {
      for (const worker of workers) {
        void worker.run().catch((err) => {
          if (!at.signal.aborted) log.error({ event: 'worker.failed', err, queue: worker.name }, 'worker failed');
        });
      }
    },

    /** Takes no new jobs. Lets running ones end before `until`, then interrupts them: their assets are handed back. */
    async drain(until: number): Promise<void> {
      let closed = false;
      const done = Promise.allSettled(workers.map((worker) => worker.close())).then(() => {
        closed = true;
      });
      // With an unreachable queue, a worker never reports that it is closed: the number of running jobs decides.
      const idle = () => closed || (!queues.answers && running === 0);
      while (!idle() && performance.now() < until) {
        await Promise.race([done, sleep(Math.min(200, until - performance.now()))]);
      }
      if (leases.size > 0) log.info({ event: 'work.handed_back', assets: leases.size }, 'work returned to the queue');
      leases.interrupt('shutting down');
      limiter.stop();
      while (!idle()) await Promise.race([done, sleep(50)]);
    },
  };
}

export function mirrorDeps(
  context: Context,
  own: Pick<MirrorDeps, 'leases' | 'breaker' | 'outages' | 'withToken'>,
): MirrorDeps {
  const { config, downloader } = context;
  const { processing, transcripts, thumbnails, keepVersions } = config;
  const { outages } = own;
  return {
    ...context,
    ...own,
    budget: createBudget(bytesInFlight),
    downloader: {
      ...downloader,
      open: (link, signal) => outages.watch('links', () => downloader.open(link, signal)),
      pin: (link, signal) => outages.watch('links', () => downloader.pin(link, signal)),
    },
    keyTemplate: config.storage.keyTemplate,
    filters: config.sync,
    processing,
    transcripts,
    thumbnails,
    keepVersions,
  };
}

function syncDeps(context: Context, withToken: Access, onWork: () => void): SyncDeps {
  const { metrics, schedule } = context;
  const { instance, sync: filters, transcripts, thumbnails } = context.config;
  const onEnd: SyncDeps['onEnd'] = (result) => metrics.syncs.inc({ result });
  // If this fails, the dispatcher does it at its next comparison.
  const onNews = (connectionId: string) => schedule.alignOne(connectionId).catch(() => {});
  const kept = { transcripts: transcripts.mirror, thumbnails: thumbnails.mirror };
  const { overlap } = filters;
  const own = { withToken, endless: new Set<string>(), onEnd, onNews, onWork };
  return { ...context, ...kept, ...own, instance, overlap, filters, goneRetention: context.config.goneRetention };
}

/** Works on one asset, and returns what the queue dashboard shows. @throws the reason of a failed attempt */
async function assetJob(mirror: MirrorDeps, dispatcher: Dispatcher, job: { data: AssetJob }) {
  const leased = await mirror.leases.take(job.data.assetId);
  if (!leased) {
    dispatcher.wake();
    return { outcome: 'nothing_to_do' };
  }
  // Not the name of the job: the asset may have changed while the job waited.
  const isMedia = leased.asset.state !== 'mirrored';
  try {
    const outcome = await whileLeased(leased, () => (isMedia ? mirrorAsset(mirror, leased) : followUp(mirror, leased)));
    const result = isMedia && resultOf(outcome);
    if (result) mirror.metrics.assets.inc({ result });
    return shown(leased.asset.attempts + 1, outcome);
  } finally {
    dispatcher.freed(leased.asset.connectionId);
  }
}

/** Works on a leased asset, and ends the lease. Log lines and spans name the asset and the sync that last changed it. */
async function whileLeased({ asset, end }: LeasedAsset, work: () => Promise<Outcome>): Promise<Outcome> {
  const { id: assetId, connectionId, syncId } = asset;
  try {
    return await withFields({ connectionId, syncId, assetId }, () =>
      span('asset', { connectionId, syncId: syncId ?? undefined, assetId }, work),
    );
  } finally {
    end();
  }
}

function shown(attempt: number, { outcome, reason, retryInMs }: Outcome) {
  const next = outcome === 'attempt_failed' ? `; next try in ${formatDuration(retryInMs ?? 0)}` : '';
  if (next || outcome === 'failed') throw new Error(`attempt ${attempt}${because(reason)}${next}`);
  return { outcome, attempt, reason: reason && renderReason(reason), retryInMs };
}

/** A drill uses none of this process's clients and keys: it reads the settings again, as a process that recovers would. */
const drillDeps = ({ config, store, log }: Context) => ({
  thumbnails: config.thumbnails,
  openBucket: () => openStorage(config.storage, { connections: 32, log }),
  async checkSecrets() {
    const keys = await savedEncryptionKeys(config);
    const noKey = () => {
      throw new Error('there is no encryption key: ENCRYPTION_KEYS is not set, and DATA_DIR/encryption-key is missing');
    };
    return checkSealed(store, keys.length > 0 ? createSealer(keys) : { open: noKey });
  },
});

/** How far ahead times are planned at most: the longest waits, each with up to a quarter of jitter. */
function horizonOf({ processing, transcripts, sync, drillInterval }: Context['config']): Horizon {
  const retry = longestWait * 1.25;
  return {
    lease: 60_000,
    pause: retry,
    asset: Math.max(retry, processing.poll, transcripts.delay),
    transcript: transcripts.giveUp,
    delivery: longestWebhookWait * 1.25,
    chore: Math.max(24 * 3_600_000, sync.reconcileInterval, drillInterval ?? 0),
  };
}
