import { z } from 'zod';
import { parseRate } from '../units.ts';
import type { OperationsDeps } from './deps.ts';
import { text } from './fields.ts';

const wanted = 'expected bytes a second, or such as 20MiB/s';
const bytes = z.int(wanted).min(1, wanted);
/** Bytes per second, or as people write it (`20MiB/s`). */
export const rate = z.union([bytes, text.transform(parseRate).pipe(bytes)], wanted);

/** Of each process; null: as each has it in BANDWIDTH_LIMIT. */
export const settingsRequest = z.strictObject({ bandwidth: rate.nullable() }).meta({ id: 'SettingsRequest' });
export type SettingsRequest = z.input<typeof settingsRequest>;

export const settingsAnswer = z
  .object({
    bandwidth: z.number().nullable().describe('Bytes per second that each process may download; null: no limit.'),
    from: z.enum(['settings', 'BANDWIDTH_LIMIT']).describe('Where that is said.'),
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

    /** All processes take it over at once. */
    async changeSettings(request: SettingsRequest) {
      await store.settings.setBandwidth(settingsRequest.parse(request).bandwidth);
      return settings();
    },
  };
}
