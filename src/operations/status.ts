import { reasonOf } from '../errors.ts';
import type { OperationsDeps } from './deps.ts';
import { byState, leftOut } from './states.ts';
import { within } from './within.ts';

/** Seconds of transfers, before anything is said about the rest. */
const soonestEstimate = 5;
const bucketLookMs = 10_000;

export function statusOperations(options: Pick<OperationsDeps, 'store' | 'queues' | 'checkBucket' | 'traffic'>) {
  const { store, queues } = options;

  let looked: { at: number; reason: Promise<string | null> } | undefined;
  /** Why the bucket takes nothing; null: it does. Each look writes an object, so one does for a while. */
  function bucketTrouble(): Promise<string | null> {
    if (!looked || Date.now() - looked.at > bucketLookMs) {
      looked = { at: Date.now(), reason: options.checkBucket().then(() => null, reasonOf) };
    }
    return looked.reason;
  }

  return {
    /** Totals, rates of the last minute, queue depths, time left at that rate. */
    async status() {
      const [records, queued, trouble] = await Promise.all([
        // Of one moment, or what passes from one figure to the next between two reads is in neither, and passes for rest.
        store.snapshot(async (at) => ({
          connections: await at.connections.list(),
          counts: await at.assets.counts(),
          outstanding: await at.assets.outstanding(),
          recent: await at.assets.recent(60_000),
          syncs: await at.syncs.open(),
          verifications: await at.verifications.open(),
        })),
        within(5000, queues.counts()),
        within(5000, bucketTrouble()),
      ]);
      const { connections, counts, outstanding, recent, syncs, verifications } = records;
      const total = counts.reduce((sum, row) => (row.leftOut ? sum : sum + row.count), 0);
      const statuses = { active: 0, paused: 0, disconnected: 0 };
      for (const { status } of connections) statuses[status]++;
      // A large file counts while it flows, as far as it flows here, and in any case when it is done.
      const bytesPerSecond = Math.max(recent.bytes / recent.seconds, options.traffic());
      const assetsPerSecond = recent.count / recent.seconds;
      const known = recent.seconds >= soonestEstimate;
      const byBytes = known && bytesPerSecond > 0 ? outstanding.bytes / bytesPerSecond : null;
      const byCount = known && assetsPerSecond > 0 ? outstanding.count / assetsPerSecond : null;
      return {
        connections: statuses,
        /** `leftOut`: by the settings; in `total` and `byState` these are not. */
        assets: { total, byState: byState(counts), leftOut: leftOut(counts) },
        bytes: counts.reduce((sum, row) => sum + row.bytes, 0),
        /** `later`: those of them that were put off after an error; `artefacts` may still come for what is mirrored. */
        outstanding: {
          assets: outstanding.count,
          bytes: outstanding.bytes,
          later: outstanding.later,
          artefacts: outstanding.artefacts,
        },
        rate: { assetsPerSecond, bytesPerSecond },
        /** Seconds; 0 when nothing is left, null when nothing moves or it is too early to say. */
        timeLeft:
          outstanding.count === 0 ? 0 : byBytes === null || byCount === null ? null : Math.max(byBytes, byCount),
        syncs,
        verifications,
        queues: queued ?? null,
        /** `reason`: why it takes nothing at present, so that everything waits. */
        bucket: { ok: trouble === null, reason: trouble === undefined ? 'it does not answer' : trouble },
      };
    },
  };
}
