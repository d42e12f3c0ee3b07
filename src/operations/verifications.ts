import { z } from 'zod';
import { differencesIn, nothingFound } from '../jobs/verify.ts';
import { existingConnection } from './connections.ts';
import type { OperationsDeps } from './deps.ts';
import { Refused } from './refused.ts';
import { text } from './text.ts';

export const verifyRequest = z
  .strictObject({
    connectionId: text.optional(),
    /** Reads every object and compares its checksum. */
    deep: z.boolean().optional(),
    /** Has what is missing or differs fetched or written again. Nothing is ever removed. */
    repair: z.boolean().optional(),
    /** Keeps a line for what is as it should be, too. */
    all: z.boolean().optional(),
    /** Writes the day's inventory at the end. */
    inventory: z.boolean().optional(),
  })
  .meta({ id: 'VerifyRequest' });
export type VerifyRequest = z.infer<typeof verifyRequest>;

export const linesQuery = z.strictObject({
  /** The number of the last line that was read. */
  after: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(0).max(1000).default(100),
});
export type LinesQuery = z.input<typeof linesQuery>;

export function verificationOperations({ store }: Pick<OperationsDeps, 'store'>) {
  return {
    /** Asks for a comparison of library, records and bucket. It is in the records when this returns; a worker takes it up. */
    async verify(request: VerifyRequest): Promise<{ id: string }> {
      const { connectionId, ...how } = verifyRequest.parse(request);
      if (connectionId !== undefined) await existingConnection(store, connectionId);
      return { id: await store.verifications.request(how, connectionId) };
    },

    /** How far a verification is, what it has counted, and a page of what it has to tell. */
    async verification(id: string, query: LinesQuery = {}) {
      const { after, limit } = linesQuery.parse(query);
      const run = await store.verifications.get(id);
      if (!run) {
        throw new Refused(
          404,
          'verification_not_found',
          `There is no verification ${id}. The last 20 are kept; POST /api/verify asks for another.`,
        );
      }
      const rows = await store.verifications.lines(id, { after, limit });
      const { lines: told = 0, assets = 0, assetsTotal = 0, ...counts } = { ...nothingFound, ...run.counts };
      return {
        id: run.id,
        connectionId: run.connectionId,
        ...run.options,
        status: run.status,
        phase: run.status === 'running' ? (run.position.phase ?? 'library') : null,
        /** Assets whose media was compared, of how many. */
        progress: { done: assets, total: assetsTotal },
        counts,
        differences: differencesIn(counts),
        error: run.error,
        requestedAt: run.requestedAt.toISOString(),
        startedAt: run.startedAt?.toISOString() ?? null,
        finishedAt: run.finishedAt?.toISOString() ?? null,
        lines: rows.map(({ remedy: _, ...line }) => line),
        /** What to pass as `after` for those behind them; null: these are the last ones for now. */
        next: rows.length > 0 && rows.at(-1)!.number < told ? rows.at(-1)!.number : null,
      };
    },
  };
}
