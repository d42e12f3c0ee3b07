import { z } from 'zod';
import { type Bandwidth, bandwidthAt, parseBandwidth, timetableOf } from '../../floor/bandwidth-limit.ts';
import type { OperationsDeps } from '../deps.ts';
import { text } from '../fields.ts';

const wanted = 'expected bytes per second, or a rate such as 20MiB/s';

/** Bytes per second, or a text such as `20MiB/s`, `unlimited` or a timetable. */
export const bandwidth = z
  .union([z.int(wanted).min(1, wanted), text], wanted)
  .transform((value, context): Bandwidth => {
    if (typeof value === 'number') return value;
    const parsed = parseBandwidth(value);
    if ('limit' in parsed) return parsed.limit;
    context.addIssue(`expected ${parsed.expected}`);
    return z.NEVER;
  });

/** A limit in an answer. */
export const shownBandwidth = {
  bandwidth: z.number().nullable().describe('Download limit of each process now, in bytes per second; null: no limit.'),
  bandwidthTimetable: z
    .string()
    .nullable()
    .describe('The timetable of the limit; null: it does not depend on the time.'),
};

export const showBandwidth = (limit: Bandwidth | null) => ({
  bandwidth: bandwidthAt(limit),
  bandwidthTimetable: timetableOf(limit),
});

export const settingsRequest = z
  .strictObject({
    bandwidth: bandwidth
      .nullable()
      .describe(
        'Download limit of each process, in a form that the settings of a connection accept; null: BANDWIDTH_LIMIT.',
      ),
  })
  .meta({ id: 'SettingsRequest' });

export const settingsAnswer = z
  .object({
    ...shownBandwidth,
    from: z.enum(['settings', 'BANDWIDTH_LIMIT']).describe('Where the limit is set.'),
    publicUrl: z.string().describe('PUBLIC_URL, the address of the dashboard.'),
  })
  .meta({ id: 'Settings' });

export function settingsOperations({
  store,
  transfer,
  publicUrl,
}: Pick<OperationsDeps, 'store' | 'transfer' | 'publicUrl'>) {
  async function settings() {
    const set = await store.settings.bandwidth();
    return {
      ...showBandwidth(set ?? transfer.bandwidth ?? null),
      from: set !== null ? ('settings' as const) : ('BANDWIDTH_LIMIT' as const),
      publicUrl,
    };
  }

  return {
    settings,

    /** Changes the limit in all processes at once. */
    async changeSettings(request: z.input<typeof settingsRequest>) {
      await store.settings.setBandwidth(settingsRequest.parse(request).bandwidth);
      return settings();
    },
  };
}
