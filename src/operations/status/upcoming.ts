import { z } from 'zod';
import { recent } from '../../floor/recent.ts';
import { expectedKinds, mostCounted } from '../../store/assets/upcoming.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, isoTimes, reasonAnswer, shownReason, time } from '../fields.ts';
import { rowsOfPage } from '../pagination.ts';

const soonMs = 3_600_000;

export const upcomingQuery = z.strictObject({ limit: rowsOfPage(50) });

const kind = z
  .enum(expectedKinds)
  .describe('A transcoding video, a transcript or thumbnail, or a retry after an error.');

export const upcomingAnswer = z
  .object({
    counts: z
      .object(
        Object.fromEntries(expectedKinds.map((name) => [name, count])) as Record<
          (typeof expectedKinds)[number],
          typeof count
        >,
      )
      .describe(`How many of each kind; at most ${mostCounted} are counted.`),
    assets: z
      .array(
        z.object({
          assetId: z.string(),
          name: z.string().nullable(),
          connectionId: z.string().nullable(),
          kind,
          at: time.describe('The next check or retry.'),
          reason: reasonAnswer.nullable(),
        }),
      )
      .describe('Soonest first.'),
  })
  .meta({ id: 'Upcoming' });

const freshMs = 10_000;

export function upcomingOperations({ store }: Pick<OperationsDeps, 'store'>) {
  const all = recent(() => store.upcoming.dueWithin(soonMs));
  return {
    /** The assets with a check or retry due within an hour. */
    async upcoming(query: z.input<typeof upcomingQuery> = {}) {
      const { limit } = upcomingQuery.parse(query);
      const now = Date.now();
      const found = (await all(freshMs)).filter(({ at }) => at.getTime() > now);
      return {
        counts: Object.fromEntries(
          expectedKinds.map((name) => [name, found.filter((one) => one.kind === name).length]),
        ) as Record<(typeof expectedKinds)[number], number>,
        assets: found.slice(0, limit).map((one) => ({ ...isoTimes(one), reason: shownReason(one.reason) })),
      };
    },
  };
}
