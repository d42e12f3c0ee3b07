import { z } from 'zod';
import { isLate } from '../../store/connections/late-syncs.ts';
import { expectedOf } from '../../store/counts/states.ts';
import type { AssetState, Connection } from '../../store/database/schema.ts';
import { time } from '../fields.ts';

const tones = ['good', 'go', 'warn', 'bad'] as const;

const texts = {
  disconnected: ['Disconnected', 'bad'],
  paused: ['Paused', 'warn'],
  waiting: ['Waiting', 'warn'],
  held: ['Held', 'bad'],
  error: ['Problem', 'bad'],
  late: ['Late', 'warn'],
  all_skipped: ['All skipped', 'warn'],
  first_sync: ['First sync', 'go'],
  mirroring: ['Mirroring', 'go'],
  assets_failed: ['Assets failed', 'bad'],
  up_to_date: ['Up to date', 'good'],
} satisfies Record<string, [text: string, tone: (typeof tones)[number]]>;
type Code = keyof typeof texts;

export const condition = z
  .object({
    code: z.enum(Object.keys(texts) as [Code, ...Code[]]),
    text: z.string(),
    tone: z.enum(tones).describe('For its colour; go: work is in progress.'),
    until: time.nullable().describe('When a waiting connection continues.'),
  })
  .describe('Summary of its status, its last sync, its failed assets, and whether a sync is overdue.');

/** The condition of a connection, for API, CLI and dashboard. `now`: epoch ms by the database's clock. */
export function conditionOf(
  connection: Connection,
  options: {
    byState: Record<AssetState, number>;
    /** A company of it is held. */
    isHeld: boolean;
    skipped: number;
    syncInterval: number;
    delayedUntil: string | null;
    now: number;
  },
): z.infer<typeof condition> {
  const code = codeOf(connection, options);
  const [text, tone] = texts[code];
  return { code, text, tone, until: code === 'waiting' ? options.delayedUntil : null };
}

function codeOf(connection: Connection, options: Parameters<typeof conditionOf>[1]): Code {
  const { byState, skipped, delayedUntil } = options;
  if (connection.status !== 'active') return connection.status;
  if (delayedUntil !== null) return 'waiting';
  if (options.isHeld) return 'held';
  if (connection.lastError !== null) return 'error';
  if (isLate(connection, options)) return 'late';
  if (skipped > 0 && expectedOf(byState) === 0) return 'all_skipped';
  if (byState.pending + byState.transferring > 0) return 'mirroring';
  if (connection.lastSyncAt === null) return 'first_sync';
  return byState.failed > 0 ? 'assets_failed' : 'up_to_date';
}
