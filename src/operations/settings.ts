import { z } from 'zod';
import { parseRate } from '../units.ts';
import type { OperationsDeps } from './deps.ts';
import { text } from './fields.ts';

const wanted = 'expected bytes per second, or a rate such as 20MiB/s';
const bytes = z.int(wanted).min(1, wanted);
/** Bytes per second, or a text such as `20MiB/s`. */
export const rate = z.union([bytes, text.transform(parseRate).pipe(bytes)], wanted);

/** The limit of each process; null: BANDWIDTH_LIMIT of the process. */
export const settingsRequest = z.strictObject({ bandwidth: rate.nullable() }).meta({ id: 'SettingsRequest' });
export type SettingsRequest = z.input<typeof settingsRequest>;

export const settingsAnswer = z
  .object({
    bandwidth: z.number().nullable().describe('Download limit of each process in bytes per second; null: no limit.'),
    from: z.enum(['settings', 'BANDWIDTH_LIMIT']).describe('Where the limit is set.'),
  })
  .meta({ id: 'Settings' });

export function settingsOperations({ store, ownBandwidth }: Pick<OperationsDeps, 'store' | 'ownBandwidth'>) {
  async function settings() {
    const set = await store.settings.bandwidth();
    return {
      bandwidth: set ?? ownBandwidth ?? null,
      from: set !== null ? ('settings' as const) : ('BANDWIDTH_LIMIT' as const),
    };
  }

  return {
    settings,

    /** Changes the limit in all processes at once. */
    async changeSettings(request: SettingsRequest) {
      await store.settings.setBandwidth(settingsRequest.parse(request).bandwidth);
      return settings();
    },
  };
}
