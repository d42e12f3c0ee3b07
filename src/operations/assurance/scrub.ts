import { z } from 'zod';
import { dayMs } from '../../floor/units.ts';
import type { Store } from '../../store/store.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, time } from '../fields.ts';

export const scrubStatus = z.object({
  cycle: z.number().nullable().describe('Milliseconds within which each mirrored file is read back; null: off.'),
  oldest: time.nullable().describe('The oldest "last verified" time of all files.'),
  onTime: z.boolean().nullable().describe('Whether each file will be verified in time; null: the scrub is off.'),
  unverifiable: count.describe('Files that cannot be compared: archived, or damaged and gone from the library.'),
});

export const scrubAnswer = scrubStatus
  .extend({
    bandwidth: count.describe('Bytes per second at most.'),
    bytesPerSecond: z.number().describe('Bytes per second that it needs to be in time.'),
    assets: count,
    objects: count.describe('Media, records, transcripts and thumbnails, with those of superseded files.'),
    bytes: count,
    perDay: z
      .object({ requests: count, bytes: count })
      .nullable()
      .describe('Expected, on average over a cycle; null: the scrub is off.'),
  })
  .meta({ id: 'Scrub' });

type Progress = Awaited<ReturnType<Store['scrub']['progress']>>;

/** Whether the files are verified in time, for the status of the service. `now`: epoch ms. */
export function scrubStatusOf({ scrub, oldest }: Progress, options: OperationsDeps['scrub'], now: number) {
  const { cycle, bandwidth } = options;
  const needed = scrub?.bytesPerSecond ?? 0;
  return {
    cycle: cycle ?? null,
    oldest: oldest?.toISOString() ?? null,
    onTime: cycle === undefined ? null : (oldest === null || now - oldest.getTime() <= cycle) && needed <= bandwidth,
    unverifiable: scrub?.unverifiable ?? 0,
  };
}

export function scrubOperations({ store, scrub: options }: Pick<OperationsDeps, 'store' | 'scrub'>) {
  return {
    /** The state of the scrub, and what it costs. Reads all assets. */
    async scrub() {
      const [progress, sizes, now] = await Promise.all([store.scrub.progress(), store.scrub.sizes(), store.now()]);
      const days = options.cycle && options.cycle / dayMs;
      return {
        ...scrubStatusOf(progress, options, now),
        bandwidth: options.bandwidth,
        bytesPerSecond: progress.scrub?.bytesPerSecond ?? 0,
        ...sizes,
        perDay: days
          ? // Each object is looked up, and read.
            { requests: Math.ceil((2 * sizes.objects) / days), bytes: Math.ceil(sizes.bytes / days) }
          : null,
      };
    },
  };
}
