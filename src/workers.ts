import { setTimeout as sleep } from 'node:timers/promises';
import { longestWait } from './errors.ts';
import { type Log, withFields } from './log.ts';
import type { MirrorDeps } from './mirror/deps.ts';
import { followUp } from './mirror/follow-up.ts';
import { mirrorAsset } from './mirror/mirror-asset.ts';
import { type Outcome, resultOf } from './mirror/outcome.ts';
import type { Tokens } from './oauth/tokens.ts';
import { Limiter } from './pacing/adaptive-concurrency.ts';
import { createBudget } from './pacing/byte-budget.ts';
import { createCircuitBreaker } from './pacing/circuit-breaker.ts';
import { createOutageDetector } from './pacing/outage.ts';
import { type Access, createAccess } from './pacing/with-token.ts';
import { startDispatcher } from './queue/dispatcher.ts';
import { createLeases, type HeldAsset } from './queue/leases.ts';
import { startPruning } from './queue/prune-records.ts';
import type { AssetJob, Queues, SyncJob } from './queue/queues.ts';
import type { Schedule } from './queue/scheduler.ts';
import type { Horizon } from './store/database/correct-future.ts';
import type { SyncDeps } from './sync/deps.ts';
import { runSyncs } from './sync/run-syncs.ts';
import { span } from './tracing/tracing.ts';
import { formatDuration } from './units.ts';
import { startScheduledVerification } from './verify/scheduled.ts';
import { startSweeping } from './verify/sweep-uploads.ts';
import { longestWebhookWait, startWebhooks, type WebhookDeps } from './webhooks/deliver.ts';

export type Workers = Awaited<ReturnType<typeof startWorkers>>;

/** Syncs that run at once in one process. They mostly wait for the service. */
const syncConcurrency = 10;

/** Parts of large files that are on their way at once in one process, in bytes. They are streamed: none is held. */
const bytesInFlight = 128 * 2 ** 20;

/** What the last moments of a stop are for: handing back what is still in hand. */
const handBackMs = 2000;

/** Works on an asset while it is ours; each line of that says which it is, and which run has brought it. */
async function whileLeased(held: HeldAsset, work: (held: HeldAsset) => Promise<Outcome>): Promise<Outcome> {
  const { id: assetId, connectionId, syncId } = held.asset;
  try {
    return await withFields({ connectionId, syncId, assetId }, () =>
      span('asset', { connectionId, syncId: syncId ?? undefined, assetId }, () => work(held)),
    );
  } finally {
    held.end();
  }
}

/** What the queue dashboard shows of a job. @throws the reason of a failed attempt: then the job is shown as failed */
function resultOfJob(attempt: number, { outcome, reason, retryInMs }: Outcome) {
  if (outcome === 'attempt_failed')
    throw new Error(`attempt ${attempt}: ${reason}; next try in ${formatDuration(retryInMs ?? 0)}`);
  if (outcome === 'failed') throw new Error(`attempt ${attempt}: ${reason}`);
  return { outcome, attempt, reason, retryInMs };
}

/** How far ahead the jobs plan anything: `longestWait`, with up to a quarter of jitter, is the longest wait of each kind. */
function horizonOf(
  { processing, transcripts }: Pick<MirrorDeps, 'processing' | 'transcripts'>,
  reconcileInterval: number,
): Horizon {
  const retry = longestWait * 1.25;
  return {
    lease: 60_000,
    pause: retry,
    asset: Math.max(retry, processing.poll, transcripts.delay),
    transcript: transcripts.giveUp,
    delivery: longestWebhookWait * 1.25,
    chore: Math.max(24 * 3_600_000, reconcileInterval),
  };
}

/** Starts taking jobs off the queues, and putting on them what is due. */
export async function startWorkers(options: {
  mirror: Omit<MirrorDeps, 'leases' | 'breaker' | 'outages' | 'limiter' | 'budget' | 'withToken'>;
  sync: Omit<SyncDeps, 'onWork' | 'withToken'>;
  queues: Queues;
  schedule: Schedule;
  tokens: Tokens;
  log: Log;
  concurrency: number;
  perConnection: number;
  reconcileInterval: number;
  /** Undefined: nobody is told of anything. */
  webhooks: WebhookDeps | undefined;
}) {
  const { queues, log } = options;
  const { store, storage, metrics } = options.mirror;
  const stopping = new AbortController();
  const leases = createLeases({ store, log });
  const breaker = createCircuitBreaker({ storage, log, onClose: () => dispatcher.wake() });
  const dispatcher = startDispatcher({
    store,
    queues,
    schedule: options.schedule,
    breaker,
    log,
    perConnection: options.perConnection,
    filters: options.mirror.filters,
    horizon: horizonOf(options.mirror, options.reconcileInterval),
  });
  const outages = createOutageDetector();
  const limiter = new Limiter({ store, log, perConnection: options.perConnection });
  const withTokenPaced = createAccess(options.tokens, limiter, options.mirror.client);
  const withToken: Access = (connectionId, call, grant) =>
    outages.watch('api', () => withTokenPaced(connectionId, call, grant), connectionId);
  const { downloader } = options.mirror;
  const mirror: MirrorDeps = {
    ...options.mirror,
    leases,
    breaker,
    outages,
    budget: createBudget(bytesInFlight),
    withToken,
    limiter,
    downloader: {
      ...downloader,
      open: (link, signal) => outages.watch('links', () => downloader.open(link, signal)),
      pin: (link, signal) => outages.watch('links', () => downloader.pin(link, signal)),
    },
  };
  const sync: SyncDeps = { ...options.sync, withToken, onWork: dispatcher.wake };

  const assets = queues.worker<AssetJob>(
    'assets',
    async (job) => {
      const held = await leases.take(job.data.assetId);
      if (!held) {
        dispatcher.wake();
        return { outcome: 'nothing_to_do' };
      }
      const isMedia = job.name !== 'follow-up';
      try {
        const outcome = await whileLeased(held, (held) =>
          isMedia ? mirrorAsset(mirror, held) : followUp(mirror, held),
        );
        const counted = isMedia && resultOf(outcome);
        if (counted) metrics.assets.inc({ result: counted });
        return resultOfJob(held.asset.attempts + 1, outcome);
      } finally {
        dispatcher.freed(held.asset.connectionId);
      }
    },
    { concurrency: options.concurrency },
  );
  let syncing = 0;
  const syncs = queues.worker<SyncJob>(
    'syncs',
    async (job) => {
      const { connectionId, mode } = job.data;
      syncing++;
      try {
        return await runSyncs(sync, connectionId, stopping.signal, mode);
      } finally {
        syncing--;
      }
    },
    { concurrency: syncConcurrency },
  );
  const scheduled = startScheduledVerification({
    store,
    storage,
    queues,
    log,
    instance: options.sync.instance,
    reconcileInterval: options.reconcileInterval,
  });
  const pruning = startPruning({ store, log });
  const webhooks = options.webhooks && startWebhooks(options.webhooks);
  await Promise.all([breaker.check(), queues.ready()]);
  const janitor = startSweeping({ store, storage, breaker, log });
  for (const worker of [assets, syncs]) {
    void worker.run().catch((err) => {
      if (!stopping.signal.aborted) log.error({ err, queue: worker.name }, 'worker stopped');
    });
  }

  return {
    breaker,
    clockSet: dispatcher.clockSet,
    /**
     * Takes nothing new, lets work in hand end for as long as the grace allows, and hands the rest back: no attempt is
     * spent, and any other process can go on with it at once.
     */
    async stop(graceMs: number): Promise<void> {
      const started = performance.now();
      stopping.abort(new Error('shutting down'));
      const audited = scheduled.stop();
      await Promise.all([dispatcher.stop(), janitor.stop()]);
      let closed = false;
      const done = Promise.allSettled([assets.close(), syncs.close()]).then(() => {
        closed = true;
      });
      // A queue that is away never says that a worker is done: then what is in hand tells.
      const idle = () => closed || (!queues.answers && leases.size + syncing === 0);
      const until = started + Math.max(0, graceMs - handBackMs);
      while (!idle() && performance.now() < until)
        await Promise.race([done, sleep(Math.min(200, until - performance.now()))]);
      if (leases.size > 0) log.info({ assets: leases.size }, 'handing work back');
      leases.interrupt('shutting down');
      while (!idle()) await Promise.race([done, sleep(50)]);
      await options.tokens.settled();
      await Promise.all([pruning.stop(), webhooks?.stop()]);
      await breaker.stop();
      await leases.close();
      await audited;
      log.info({ ms: Math.round(performance.now() - started) }, 'workers stopped');
    },
  };
}
