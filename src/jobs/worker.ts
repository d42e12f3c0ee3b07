import { setTimeout as sleep } from 'node:timers/promises';
import { UnrecoverableError } from 'bullmq';
import { type Log, withFields } from '../log.ts';
import type { Tokens } from '../oauth/tokens.ts';
import { span, withinTrace } from '../tracing/tracing.ts';
import { type Access, createAccess } from './access.ts';
import { completeArtefacts } from './artefacts.ts';
import { startAudits } from './audits.ts';
import { createBudget } from './budget.ts';
import type { MirrorDeps } from './deps.ts';
import { startDispatcher } from './dispatch.ts';
import { createGate } from './gate.ts';
import { startJanitor } from './janitor.ts';
import { mirrorAsset } from './mirror-asset.ts';
import { type Outcome, type OutcomeName, resultOf } from './outcome.ts';
import { createPacer } from './pacer.ts';
import { startPruning } from './prune.ts';
import type { AssetJob, Queues, SyncJob } from './queues.ts';
import { createReach } from './reach.ts';
import type { Schedule } from './schedule.ts';
import { runSyncs, type SyncDeps } from './sync.ts';
import { createTurns, type HeldAsset } from './turns.ts';
import { startWebhooks, type WebhookDeps } from './webhooks.ts';

export type Workers = Awaited<ReturnType<typeof startWorkers>>;

/** Syncs that run at once in one process. They mostly wait for the service. */
const syncConcurrency = 10;

/** Parts of large files that are on their way at once in one process, in bytes. They are streamed: none is held. */
const bytesInFlight = 128 * 2 ** 20;

/** What the last moments of a stop are for: handing back what is still in hand. */
const handBackMs = 2000;

/**
 * So long a place on the queue is passed on from one asset of a connection to the next, without the queue, in milliseconds.
 * Then it is free for whatever the dispatcher finds, in whichever worker.
 */
const passedOnMs = 1000;

/** What a job says of itself: what became of its asset, and of those that went on in its place, how many of each. */
interface JobOutcome extends Outcome {
  next?: Partial<Record<OutcomeName, number>>;
}

/** Works on an asset while it is ours; each line of that says which it is, and which run has brought it. */
async function inTurn(held: HeldAsset, work: (held: HeldAsset) => Promise<Outcome>): Promise<Outcome> {
  const { id: assetId, connectionId, syncId, traceparent } = held.asset;
  try {
    return await withinTrace(traceparent, () =>
      withFields({ connectionId, syncId, assetId }, () =>
        span('asset', { connectionId, syncId: syncId ?? undefined, assetId }, () => work(held)),
      ),
    );
  } catch (error) {
    // Whose turn has begun already is not kept: it runs out, and the asset comes back.
    held.next?.end();
    throw error;
  } finally {
    held.end();
  }
}

/** Starts taking jobs off the queues, and putting on them what is due. */
export async function startWorkers(options: {
  mirror: Omit<MirrorDeps, 'turns' | 'gate' | 'reach' | 'pacer' | 'budget' | 'withToken'>;
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
  const turns = createTurns({ store, log, perConnection: options.perConnection });
  const gate = createGate({ storage, log, onOpen: () => dispatcher.wake() });
  const dispatcher = startDispatcher({
    store,
    queues,
    schedule: options.schedule,
    gate,
    log,
    perConnection: options.perConnection,
    selection: options.mirror.selection,
  });
  const reach = createReach();
  const pacer = createPacer({ store, log, perConnection: options.perConnection });
  const withTokenPaced = createAccess(options.tokens, pacer, options.mirror.client);
  const withToken: Access = (connectionId, call, grant) =>
    reach.watch('api', () => withTokenPaced(connectionId, call, grant), connectionId);
  const { downloader } = options.mirror;
  const mirror: MirrorDeps = {
    ...options.mirror,
    turns,
    gate,
    reach,
    budget: createBudget(bytesInFlight),
    withToken,
    pacer,
    downloader: {
      ...downloader,
      open: (link, signal) => reach.watch('links', () => downloader.open(link, signal)),
      pin: (link, signal) => reach.watch('links', () => downloader.pin(link, signal)),
    },
  };
  const sync: SyncDeps = { ...options.sync, withToken, onWork: dispatcher.wake };

  const assets = queues.worker<AssetJob>(
    'assets',
    async (job) => {
      const until = performance.now() + passedOnMs;
      const goesOn = () => performance.now() < until && gate.closed === undefined && !stopping.signal.aborted;
      let held = await turns.take(job.data.assetId, goesOn);
      if (!held) {
        dispatcher.wake();
        return { outcome: 'nothing to do' };
      }
      const { connectionId } = held.asset;
      let told: JobOutcome | undefined;
      try {
        for (; held; held = held.next) {
          const media = job.name !== 'artefacts';
          const result = await inTurn(held, (held) =>
            media ? mirrorAsset(mirror, held) : completeArtefacts(mirror, held),
          );
          const counted = media && resultOf(result);
          if (counted) metrics.assets.inc({ result: counted });
          if (told)
            told = { ...told, next: { ...told.next, [result.outcome]: (told.next?.[result.outcome] ?? 0) + 1 } };
          else told = result;
        }
      } finally {
        dispatcher.freed(connectionId);
      }
      // For the queue dashboard: the records know already.
      if (told!.outcome === 'failed') throw new UnrecoverableError(told!.reason);
      return told;
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
  const audits = startAudits({
    store,
    storage,
    queues,
    log,
    instance: options.sync.instance,
    reconcileInterval: options.reconcileInterval,
  });
  const pruning = startPruning({ store, log });
  const webhooks = options.webhooks && startWebhooks(options.webhooks);
  await gate.look();
  const janitor = startJanitor({ store, storage, gate, log });
  for (const worker of [assets, syncs]) {
    void worker.run().catch((err) => {
      if (!stopping.signal.aborted) log.error({ err, queue: worker.name }, 'worker stopped');
    });
  }

  return {
    gate,
    /**
     * Takes nothing new, lets work in hand end for as long as the grace allows, and hands the rest back: no attempt is
     * spent, and any other process can go on with it at once.
     */
    async stop(graceMs: number): Promise<void> {
      const started = Date.now();
      stopping.abort(new Error('shutting down'));
      const audited = audits.stop();
      await Promise.all([dispatcher.stop(), janitor.stop()]);
      let closed = false;
      const done = Promise.allSettled([assets.close(), syncs.close()]).then(() => {
        closed = true;
      });
      // A queue that is away never says that a worker is done: then what is in hand tells.
      const idle = () => closed || (!queues.answers && turns.size + syncing === 0);
      const until = started + Math.max(0, graceMs - handBackMs);
      while (!idle() && Date.now() < until) await Promise.race([done, sleep(Math.min(200, until - Date.now()))]);
      if (turns.size > 0) log.info({ assets: turns.size }, 'handing work back');
      turns.interrupt('shutting down');
      while (!idle()) await Promise.race([done, sleep(50)]);
      await options.tokens.settled();
      await Promise.all([pruning.stop(), webhooks?.stop()]);
      await gate.stop();
      await turns.close();
      await audited;
      log.info({ ms: Date.now() - started }, 'workers stopped');
    },
  };
}
