import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from './context.ts';
import { withFields } from './floor/log.ts';
import { because, renderReason } from './floor/reasons.ts';
import { formatDuration } from './floor/units.ts';
import type { MirrorDeps } from './mirror/deps.ts';
import { followUp } from './mirror/follow-up.ts';
import { mirrorAsset } from './mirror/mirror-asset.ts';
import { type Outcome, resultOf } from './mirror/retry-or-fail.ts';
import type { Dispatcher } from './queue/dispatcher.ts';
import type { LeasedAsset, Leases } from './queue/leases.ts';
import type { AssetJob, QueueName, SyncJob } from './queue/queues.ts';
import type { SyncDeps } from './sync/deps.ts';
import { runSyncs } from './sync/run-syncs.ts';
import { span } from './tracing/tracing.ts';

/** Syncs that run at once in one process. They mostly wait for the library. */
const syncConcurrency = 10;

interface JobDeps {
  leases: Leases;
  mirror: MirrorDeps;
  sync: SyncDeps;
  dispatcher: Dispatcher;
  /** The process stops. */
  signal: AbortSignal;
}

/** The BullMQ workers of both queues. */
export function openJobs({ config, queues, limiter, log }: Context, deps: JobDeps) {
  const { leases } = deps;
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
      counted(({ data }) => assetJob(deps, data.assetId)),
      { concurrency: config.transfer.concurrency },
    ),
    queues.worker<SyncJob>(
      'syncs',
      // If this process cannot reach the library, syncs wait for another one. A paused worker still takes the job that it waited for.
      counted(({ data }) =>
        deps.mirror.libraryBreaker.openReason === undefined
          ? runSyncs(deps.sync, data.connectionId, deps.signal)
          : Promise.resolve({ outcome: 'handed_back', done: 0 }),
      ),
      { concurrency: syncConcurrency },
    ),
  ];

  return {
    run(): void {
      for (const worker of workers) {
        // `resume` has started it already.
        if (worker.isRunning()) continue;
        void worker.run().catch((err) => {
          if (!deps.signal.aborted) log.error({ event: 'worker.failed', err, queue: worker.name }, 'worker failed');
        });
      }
    },

    /** Pauses or resumes each queue in this process. Running jobs continue. */
    pause(paused: Record<QueueName, boolean>): void {
      for (const worker of workers) {
        const isPaused = paused[worker.name as QueueName];
        if (isPaused === worker.isPaused()) continue;
        void (isPaused ? worker.pause(true) : worker.resume());
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
      // Ends the waits for its check.
      deps.mirror.breaker.stop();
      while (!idle()) await Promise.race([done, sleep(50)]);
    },
  };
}

async function assetJob({ leases, mirror, dispatcher }: JobDeps, assetId: string) {
  const leased = await leases.take(assetId);
  if (!leased) {
    dispatcher.wake();
    return { outcome: 'nothing_to_do' };
  }
  // The state decides, not the name of the job: the asset may have changed while the job waited.
  const isMedia = leased.asset.state !== 'mirrored';
  try {
    const outcome = await whileLeased(leased, () => (isMedia ? mirrorAsset(mirror, leased) : followUp(mirror, leased)));
    const result = isMedia && resultOf(outcome);
    if (result) mirror.metrics.assets.inc({ result });
    return resultOrThrow(leased.asset.attempts + 1, outcome);
  } finally {
    dispatcher.freed(leased.asset.connectionId);
  }
}

/** Works on a leased asset, and then stops renewing its lease. Log lines and spans name the asset and the sync that last changed it. */
async function whileLeased({ asset, forget }: LeasedAsset, work: () => Promise<Outcome>): Promise<Outcome> {
  const { id: assetId, connectionId, syncId } = asset;
  try {
    return await withFields({ connectionId, syncId, assetId }, () =>
      span('asset', { connectionId, syncId: syncId ?? undefined, assetId }, work),
    );
  } finally {
    forget();
  }
}

/** What the queue dashboard shows of a job. @throws for a failed attempt: the queue then counts the job as failed */
function resultOrThrow(attempt: number, { outcome, reason, retryInMs }: Outcome) {
  const next = outcome === 'attempt_failed' ? `; next try in ${formatDuration(retryInMs ?? 0)}` : '';
  if (next || outcome === 'failed') throw new Error(`attempt ${attempt}${because(reason)}${next}`);
  return { outcome, attempt, reason: reason && renderReason(reason), retryInMs };
}
