import { z } from 'zod';
import { within } from '../../floor/within.ts';
import { byState, expectedOf, skipped } from '../../store/counts/states.ts';
import { scrubStatus, scrubStatusOf } from '../assurance/scrub.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, stateCounts } from '../fields.ts';
import { nextWeekOf } from '../removal/removals.ts';
import { recentRate } from './recent-rate.ts';

const open = z.object({ waiting: count, running: count });

export const statusAnswer = z
  .object({
    connections: z.object({
      active: count,
      paused: count,
      disconnected: count,
      troubled: count.describe(
        'Active ones with an error, a held company or a late sync; see `condition` of a connection.',
      ),
    }),
    assets: z.object({
      total: count,
      expected: count.describe('Those that have a file in the library: `total` without unavailable and gone ones.'),
      byState: stateCounts,
      skipped: count.describe('Skipped by filters; not included in `total` and `byState`.'),
    }),
    bytes: count.describe('Size of the media in the bucket.'),
    versions: z.object({ count, bytes: count }).describe('Superseded files that are kept, with their sidecars.'),
    outstanding: z.object({
      assets: count.describe('To be transferred, by active connections.'),
      bytes: count,
      later: count.describe('Those that wait to retry after an error.'),
      sidecars: count.describe('Mirrored assets that wait for a transcript or thumbnail.'),
    }),
    rate: z.object({ assetsPerSecond: z.number(), bytesPerSecond: z.number() }).describe('In the last minute.'),
    timeLeft: z
      .number()
      .nullable()
      .describe('Seconds; null: nothing was transferred in the last minute, or it is too early for an estimate.'),
    syncs: open,
    verifications: open,
    removals: z
      .object({ assets: count, bytes: count, heldCompanies: count })
      .describe(
        'What GONE_RETENTION removes in the next 7 days; `heldCompanies`: companies that would lose too many assets.',
      ),
    scrub: scrubStatus,
    transcriptSearch: z
      .object({ waiting: count.describe('Transcripts that are not searched yet.') })
      .nullable()
      .describe('null: SEARCH_TRANSCRIPTS is off.'),
    queues: z.record(z.string(), z.record(z.string(), count)).nullable().describe('null: the queue does not answer.'),
    bucket: z.object({
      ok: z.boolean(),
      reason: z.string().nullable().describe('Why the bucket is unavailable. All assets wait until it is available.'),
    }),
  })
  .meta({ id: 'Status' });

export function statusOperations(
  options: Pick<
    OperationsDeps,
    'store' | 'queues' | 'bucketTrouble' | 'traffic' | 'sync' | 'goneRetention' | 'scrub' | 'transcripts'
  >,
) {
  const { store, queues } = options;

  return {
    /** Totals, rates of the last minute, queue depths, time left at that rate. */
    async status() {
      const [records, removals, queued, trouble, now] = await Promise.all([
        // One snapshot: between two reads, an asset that changes its state could be missing from both figures.
        store.snapshot(async (at) => ({
          connections: await at.connections.countByStatus(),
          troubled: await at.connections.countTroubled(options.sync.interval),
          counts: await at.counts.totals(),
          versions: await at.versions.total(),
          outstanding: await at.counts.outstanding(),
          rate: await recentRate(at, options.traffic),
          syncs: await at.syncs.countOpen(),
          verifications: await at.verifications.open(),
          scrub: await at.scrub.progress(),
          transcriptSearch: options.transcripts.search ? { waiting: await at.transcripts.countUnread() } : null,
        })),
        nextWeekOf(store, options.goneRetention),
        within(5000, queues.counts()).catch(() => undefined),
        within(5000, options.bucketTrouble()),
        store.now(),
      ]);
      const { connections, troubled, counts, versions, outstanding, syncs, verifications } = records;
      const { isEarly, ...rate } = records.rate;
      const states = byState(counts);
      const total = counts.reduce((sum, row) => (row.skipped ? sum : sum + row.count), 0);
      return {
        connections: { active: 0, paused: 0, disconnected: 0, ...connections, troubled },
        assets: { total, expected: expectedOf(states), byState: states, skipped: skipped(counts) },
        bytes: counts.reduce((sum, row) => sum + row.bytes, 0),
        versions,
        outstanding: {
          assets: outstanding.count,
          bytes: outstanding.bytes,
          later: outstanding.later,
          sidecars: outstanding.sidecars,
        },
        rate,
        timeLeft: isEarly && outstanding.count > 0 ? null : timeLeft(outstanding, rate),
        syncs,
        verifications,
        removals: {
          assets: removals.nextWeek.assets,
          bytes: removals.nextWeek.bytes,
          heldCompanies: removals.heldCompanies.length,
        },
        scrub: scrubStatusOf(records.scrub, options.scrub, now),
        transcriptSearch: records.transcriptSearch,
        queues: queued ?? null,
        bucket: { ok: trouble === null, reason: trouble === undefined ? 'it does not answer' : trouble },
      };
    },
  };
}

/** The seconds that are left at this rate; null: nothing moves. While large files are transferred, no asset may end for minutes. */
export function timeLeft(
  outstanding: { count: number; bytes: number },
  { assetsPerSecond, bytesPerSecond }: { assetsPerSecond: number; bytesPerSecond: number },
): number | null {
  if (outstanding.count === 0) return 0;
  const estimates = [
    ...(outstanding.bytes > 0 && bytesPerSecond > 0 ? [outstanding.bytes / bytesPerSecond] : []),
    ...(assetsPerSecond > 0 ? [outstanding.count / assetsPerSecond] : []),
  ];
  return estimates.length > 0 ? Math.max(...estimates) : null;
}
