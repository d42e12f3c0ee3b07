import { z } from 'zod';
import { roughDuration } from '../../floor/units.ts';
import { drillFailures, failureText, losses } from '../../store/drills/drill-report.ts';
import type { Drill } from '../../store/drills/drills.ts';
import { usualSample } from '../../verify/drill/run-drills.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, isoTimes, numberOf, reasonAnswer, shownReason, time } from '../fields.ts';
import { rowsOfPage } from '../pagination.ts';
import { Refused } from '../refused.ts';

export const drillRequest = z
  .strictObject({
    sample: z.number().int().min(1).max(10_000).optional().describe(`Assets to read (default ${usualSample}).`),
  })
  .meta({ id: 'DrillRequest' });

export const drillAccepted = z.object({ id: z.string() }).meta({ id: 'DrillAccepted' });

const ms = count.describe('Milliseconds.');
const objects = z.array(z.object({ assetId: z.string(), key: z.string(), text: z.string() }));

export const drillSummary = z
  .object({
    id: z.string(),
    status: z.enum(['waiting', 'running', 'passed', 'failed']),
    scheduled: z.boolean(),
    requestedAt: time,
    startedAt: time.nullable(),
    finishedAt: time.nullable(),
    error: z.string().nullable().describe('Why the drill, or its last attempt, failed.'),
    reason: reasonAnswer.nullable().describe('The same as a code with data.'),
    key: z.string().nullable().describe('The key of the report in the bucket.'),
    failures: z.array(z.object({ code: z.enum(drillFailures), count, text: z.string() })),
    recovery: z
      .object({
        recordsMs: ms.describe('Measured: milliseconds to restore all records from the bucket.'),
        mediaMs: ms.nullable().describe('Extrapolated from the sample: milliseconds to read all media once.'),
        mediaBytes: count,
      })
      .nullable(),
    lost: count
      .nullable()
      .describe('Records, superseded files and tombstones that are missing in the bucket, or differ there.'),
    oldestLoss: time.nullable().describe('When the oldest of the lost records changed; null: nothing is lost.'),
    text: z.string().nullable().describe('The result as a sentence, which may change; null: it has not ended.'),
  })
  .meta({ id: 'DrillSummary' });

export const drillAnswer = drillSummary
  .extend({
    report: z
      .object({
        storage: z.string(),
        restored: z.object({ assets: count, versions: count, tombstones: count, bytes: count, objects: count }),
        loss: z.object({
          compared: count,
          inProgress: count.describe(
            'Assets that changed during the drill. Their differences do not count as failures.',
          ),
          examples: z.array(
            z.object({ assetId: z.string(), key: z.string(), code: z.enum(drillFailures), since: time }),
          ),
          onlyInDatabase: z.object({
            connections: count,
            webhooks: count,
            tokens: count,
            holds: count,
            auditEntries: count,
          }),
        }),
        sample: z.object({
          requested: count,
          assets: count,
          objects: count,
          bytes: count,
          ms,
          versions: count.describe('Superseded files that were also read.'),
          damaged: objects,
          unreadable: objects.describe('The bucket answered with an error twice.'),
        }),
        secrets: z.object({
          checked: count,
          unreadable: z.array(z.object({ name: z.string(), reason: z.string() })),
        }),
        problems: z.object({ count, lines: z.array(z.string()) }),
      })
      .nullable()
      .describe('null: it has not ended, or could not run.'),
  })
  .meta({ id: 'Drill' });

export const drillList = z.object({ drills: z.array(drillSummary) }).meta({ id: 'DrillList' });
export const drillQuery = z.strictObject({ limit: rowsOfPage(20) });

export function drillOperations({ store }: Pick<OperationsDeps, 'store'>) {
  return {
    /** Requests a restore drill; a worker runs it. If one waits already, returns the id of that one. */
    async startDrill(request: z.infer<typeof drillRequest> = {}): Promise<{ id: string }> {
      const { sample = usualSample } = drillRequest.parse(request);
      return { id: await store.drills.request({ sample }) };
    },

    /** The last drills, newest first. */
    async drills(query: z.input<typeof drillQuery> = {}) {
      const { limit } = drillQuery.parse(query);
      return { drills: (await store.drills.list(limit)).map(drillSummaryOf) };
    },

    async drill(id: string) {
      const drill = await store.drills.get(id);
      if (!drill) {
        throw new Refused(404, 'drill_not_found', `There is no drill ${id}; the last 100 are kept.`);
      }
      return { ...drillSummaryOf(drill), report: drill.report };
    },
  };
}

export function drillSummaryOf({ report, sample: _, ...drill }: Drill) {
  const failures = report?.failures.map((failure) => ({ ...failure, text: failureText(failure) })) ?? [];
  const lost = failures.reduce((sum, { code, count }) => (losses.has(code) ? sum + count : sum), 0);
  const reason = shownReason(drill.error);
  const summary = {
    ...isoTimes(drill),
    error: reason?.text ?? null,
    reason,
    failures,
    recovery: report?.recovery ?? null,
    lost: report ? lost : null,
    oldestLoss: report?.loss.oldest ?? null,
  };
  return { ...summary, text: textOf(summary) };
}

function textOf({
  finishedAt,
  error,
  failures,
  recovery,
  lost,
}: Omit<z.infer<typeof drillSummary>, 'text'>): string | null {
  if (finishedAt === null) return null;
  if (!recovery) return `The drill could not run: ${error}`;
  if (failures.length > 0) {
    return `${failures.map(({ text }) => text).join('; ')}${lost ? `; ${numberOf(lost, 'record')} would be lost` : ''}`;
  }
  const { recordsMs, mediaMs } = recovery;
  const about = mediaMs !== null && mediaMs >= 1000 ? 'about ' : '';
  const media = mediaMs === null ? '' : `; reading all media takes ${about}${roughDuration(mediaMs)}`;
  return `All records are restored in ${roughDuration(recordsMs)}, and nothing is lost${media}`;
}
