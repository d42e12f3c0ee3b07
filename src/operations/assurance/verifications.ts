import { z } from 'zod';
import { type Verification, verificationPhases } from '../../store/database/schema.ts';
import { differencesIn, nothingFound } from '../../verify/counts.ts';
import { existingConnection } from '../connections/connections.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, reasonAnswer, shownReason, text, time } from '../fields.ts';
import { numberIn, rowsOfPage } from '../pagination.ts';
import { Refused } from '../refused.ts';

const options = {
  deep: z.boolean().optional().describe('Reads every object and compares its checksum.'),
  repair: z.boolean().optional().describe('Fetches or writes missing and different objects again. Removes nothing.'),
  all: z.boolean().optional().describe('Also keeps lines for objects that are as expected.'),
  inventory: z.boolean().optional().describe('Writes the inventory at the end.'),
  ignoreForeign: z
    .boolean()
    .optional()
    .describe('Counts objects that belong to no record, but does not report them as differences.'),
};

export const verifyRequest = z
  .strictObject({ connectionId: text.optional(), ...options })
  .meta({ id: 'VerifyRequest' });

export const linesQuery = z.strictObject({
  /** The number of the last line that was read. */
  after: numberIn(0, Number.MAX_SAFE_INTEGER, 0),
  limit: numberIn(0, 1000, 100),
});

export const verifyAnswer = z.object({ id: z.string() }).meta({ id: 'VerificationAccepted' });

const verificationSummary = z
  .object({
    id: z.string(),
    connectionId: z.string().nullable().describe('null: all connections.'),
    ...options,
    routine: z.literal(true).optional().describe('A scheduled verification.'),
    status: z.enum(['waiting', 'running', 'done', 'failed']),
    phase: z.enum(verificationPhases).nullable(),
    progress: z.object({ done: count, total: count }).describe('Assets compared so far, and in total.'),
    counts: z.object({
      same: count,
      missing: count,
      foreign: count,
      different: count,
      errors: count,
      absent: count.describe('Assets without a file in the library (yet); not counted as differences.'),
      skipped: count.describe('Assets skipped by filters; not counted as differences.'),
      archived: count.describe(
        'Objects that the bucket has archived, so that only their length was compared; not counted as differences.',
      ),
      moving: count,
      bytesRead: count,
      repaired: count,
    }),
    differences: count,
    error: z.string().nullable().describe('Why it, or its last attempt, failed.'),
    reason: reasonAnswer.nullable().describe('The same as a code with data.'),
    requestedAt: time,
    startedAt: time.nullable(),
    finishedAt: time.nullable(),
  })
  .meta({ id: 'VerificationSummary' });

export const verificationList = z
  .object({ verifications: z.array(verificationSummary) })
  .meta({ id: 'VerificationList' });

export const verificationQuery = z.strictObject({ connectionId: text.optional(), limit: rowsOfPage(50) });

export const verificationAnswer = verificationSummary
  .extend({
    lines: z.array(
      z.object({
        number: count,
        mark: z.enum(['=', '-', '+', '*', '!']),
        key: z.string().nullable(),
        assetId: z.string().nullable(),
        kind: z.enum(['media', 'record', 'transcript', 'thumbnail']).nullable(),
        text: z.string().nullable().describe('What was found; null: it is as expected.'),
        reason: reasonAnswer.nullable().describe('The same as a code with data.'),
        difference: z.boolean(),
      }),
    ),
    next: count.nullable().describe('Pass it as `after` for the next lines; null: none yet.'),
  })
  .meta({ id: 'Verification' });

export function verificationOperations({ store }: Pick<OperationsDeps, 'store'>) {
  return {
    /** Requests a verification. It is in the database when this returns; a worker runs it. */
    async verify(request: z.infer<typeof verifyRequest>): Promise<{ id: string }> {
      const { connectionId, ...how } = verifyRequest.parse(request);
      if (connectionId !== undefined) await existingConnection(store, connectionId);
      return { id: await store.verifications.request(how, connectionId) };
    },

    /** The verifications that wait or run, and the last ones that ended, newest first. */
    async verifications(query: z.input<typeof verificationQuery> = {}) {
      const { connectionId, limit } = verificationQuery.parse(query);
      if (connectionId !== undefined) await existingConnection(store, connectionId);
      return { verifications: (await store.verifications.list({ connectionId, limit })).map(summaryOf) };
    },

    /** The progress and counts of a verification, and a page of its lines. */
    async verification(id: string, query: z.input<typeof linesQuery> = {}) {
      const { after, limit } = linesQuery.parse(query);
      const run = await store.verifications.get(id);
      if (!run) {
        throw new Refused(
          404,
          'verification_not_found',
          `There is no verification ${id}; the last 50 of each kind are kept. Start another with \`asset-mirror verify\`.`,
        );
      }
      const found = await store.verifications.lines(id, { after, limit: limit + 1 });
      const rows = found.slice(0, limit);
      return {
        ...summaryOf(run),
        lines: rows.map(({ remedy: _, ...line }) => {
          const reason = shownReason(line.reason);
          return { ...line, text: reason?.text ?? null, reason };
        }),
        next: found.length > limit ? (rows.at(-1)?.number ?? after) : null,
      };
    },
  };
}

export function summaryOf(run: Verification) {
  const { lines: _, assets = 0, assetsTotal = 0, ...counts } = { ...nothingFound, ...run.counts };
  const { scheduled, ...requested } = run.options;
  const reason = shownReason(run.error);
  return {
    id: run.id,
    connectionId: run.connectionId,
    ...requested,
    ...(scheduled && { routine: scheduled }),
    status: run.status,
    phase: run.status === 'running' ? (run.position.phase ?? 'library') : null,
    progress: { done: assets, total: assetsTotal },
    counts,
    differences: differencesIn(counts, run.options),
    error: reason?.text ?? null,
    reason,
    requestedAt: run.requestedAt.toISOString(),
    startedAt: run.startedAt?.toISOString() ?? null,
    finishedAt: run.finishedAt?.toISOString() ?? null,
  };
}
