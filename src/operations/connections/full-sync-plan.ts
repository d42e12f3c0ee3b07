import { z } from 'zod';
import { bandwidthAt, bandwidthIn } from '../../floor/bandwidth-limit.ts';
import type { Connection } from '../../store/database/schema.ts';
import { type Amount, fetched, type PlanKind, type PlanProgress, plan, planKinds } from '../../sync/plan-full-sync.ts';
import type { OperationsDeps } from '../deps.ts';
import { text } from '../fields.ts';
import { recentRate } from '../status/recent-rate.ts';
import { activeConnection } from './connections.ts';

export const planQuery = z.strictObject({ connectionId: text.optional() });
export type { PlanProgress };

const amount = z.object({ assets: z.int(), bytes: z.int() });
const seconds = z.number().nullable();
const ofKind = amount.extend({
  text: z.string().describe('What it is with these assets, in words.'),
  moves: z.boolean().describe('Whether their files would be transferred.'),
});

const kindTexts: Record<PlanKind, string> = {
  new: 'new',
  missing: 'older uploads, missing in the database',
  changed: 'the file in the library has changed',
  waiting: 'known, not yet in the bucket',
  record: 'checked again: record, transcript, thumbnail, or the original of an mp4',
  same: 'in the bucket, unchanged',
  processing: 'still processing',
  unavailable: 'without a file in the library',
  skipped: 'skipped by filters',
  unreadable: 'with a listing that breaks the API schema',
};

export const planAnswer = z
  .object({
    connections: z.int(),
    pages: z.int(),
    listed: z.int(),
    sizeUnknown: z.int().describe('Assets to transfer of unknown size; `bytes` does not include them.'),
    problems: z.array(z.string()).meta({ description: 'What could not be listed, and why' }),
    skippedCompanies: z.array(z.string()).meta({ description: 'Skipped by a filter as a whole, so not listed' }),
    byKind: z.object(Object.fromEntries(planKinds.map((kind) => [kind, ofKind])) as Record<PlanKind, typeof ofKind>),
    rows: z.array(
      amount.extend({
        companyId: z.string(),
        companyName: z.string(),
        type: z.string().nullable(),
        kind: z.enum(planKinds),
      }),
    ),
    toMove: amount.meta({ description: 'New, missing, changed and waiting together' }),
    time: z
      .object({ seconds, bytesPerSecond: seconds, from: z.enum(['measured', 'limit']).nullable() })
      .meta({ description: 'At the rate of the last minute, or at the bandwidth limit; null: unknown' }),
  })
  .meta({ id: 'Plan' });
export type Plan = z.infer<typeof planAnswer>;

export const planProgress = z
  .object({
    connectionId: z.string(),
    companyId: z.string().nullable(),
    pages: z.int(),
    listed: z.int(),
    waitsUntil: z.iso.datetime().nullable(),
  })
  .meta({ id: 'PlanProgress' });

export const planLine = z.object({
  progress: planProgress.nullish(),
  result: planAnswer.optional(),
  error: z.object({ detail: z.string() }).optional(),
});

type Deps = Pick<
  OperationsDeps,
  'store' | 'client' | 'withToken' | 'filters' | 'transcripts' | 'thumbnails' | 'traffic' | 'transfer'
>;

export function planOperations(deps: Deps) {
  const { store, transcripts, thumbnails } = deps;
  const kept = { transcripts: transcripts.mirror, thumbnails: thumbnails.mirror };

  /** Bytes per second: measured while there are transfers, otherwise the limit of one process; null: unknown. */
  async function rate(connections: Connection[]) {
    const { bytesPerSecond, isEarly } = await recentRate(store, deps.traffic);
    if (!isEarly && bytesPerSecond > 0) return { bytesPerSecond, from: 'measured' as const };
    const ofProcess =
      bandwidthAt((await store.settings.bandwidth()) ?? deps.transfer.bandwidth) ?? Number.POSITIVE_INFINITY;
    const ofConnections = connections.reduce(
      (sum, { settings }) => sum + (bandwidthAt(bandwidthIn(settings.bandwidth)) ?? Number.POSITIVE_INFINITY),
      0,
    );
    const limit = Math.min(ofProcess, ofConnections);
    return Number.isFinite(limit)
      ? { bytesPerSecond: limit, from: 'limit' as const }
      : { bytesPerSecond: null, from: null };
  }

  return {
    /**
     * Plans what a full sync of one connection, or of all active ones, would transfer. Returns a function that lists the
     * library and reports its progress. Nothing is written.
     * @throws Refused when there is nothing to list
     */
    async plan(query: z.input<typeof planQuery> = {}) {
      const { connectionId } = planQuery.parse(query);
      const connections =
        connectionId === undefined
          ? (await store.connections.list()).filter(({ status }) => status === 'active')
          : [await activeConnection(store, connectionId)];
      return async (options: { signal: AbortSignal; report: (progress: PlanProgress) => void }): Promise<Plan> => {
        const { rows, ...rest } = await plan({ ...deps, ...kept }, connections, options);
        const byKind = Object.fromEntries(
          planKinds.map((kind) => [
            kind,
            { text: kindTexts[kind], moves: fetched.includes(kind), assets: 0, bytes: 0 },
          ]),
        ) as Plan['byKind'];
        const toMove: Amount = { assets: 0, bytes: 0 };
        for (const { kind, assets, bytes } of rows) {
          for (const sum of byKind[kind].moves ? [byKind[kind], toMove] : [byKind[kind]]) {
            sum.assets += assets;
            sum.bytes += bytes;
          }
        }
        const { bytesPerSecond, from } = await rate(connections);
        return {
          connections: connections.length,
          ...rest,
          byKind,
          /** By company, type and kind. */
          rows,
          toMove,
          time: { seconds: bytesPerSecond === null ? null : toMove.bytes / bytesPerSecond, bytesPerSecond, from },
        };
      };
    },
  };
}
