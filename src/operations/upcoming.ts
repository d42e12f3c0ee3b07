import { z } from 'zod';
import { type Expected, expectedKinds, mostCounted } from '../store/assets/upcoming.ts';
import type { OperationsDeps } from './deps.ts';
import { count, reasonAnswer, shownReason, time } from './fields.ts';
import { numberIn, rowsOfPage } from './pages.ts';

export const upcomingQuery = z.strictObject({
  minutes: numberIn(1, 1440, 60),
  limit: rowsOfPage(50),
});
export type UpcomingQuery = z.input<typeof upcomingQuery>;

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

/** One query serves all callers for this long. */
const freshMs = 10_000;

export function upcomingOperations({ store }: Pick<OperationsDeps, 'store'>) {
  const recent = new Map<number, { at: number; found: Promise<Expected[]> }>();
  function find(minutes: number): Promise<Expected[]> {
    const now = performance.now();
    for (const [key, { at }] of recent) if (now - at > freshMs) recent.delete(key);
    const last = recent.get(minutes);
    if (last) return last.found;
    const found = store.forecast.within(minutes * 60_000);
    recent.set(minutes, { at: now, found });
    found.catch(() => recent.delete(minutes));
    return found;
  }

  return {
    /** The assets with a check or retry due soon. */
    async upcoming(query: UpcomingQuery = {}) {
      const { minutes, limit } = upcomingQuery.parse(query);
      const found = (await find(minutes)).filter(({ at }) => at.getTime() > Date.now());
      return {
        counts: Object.fromEntries(
          expectedKinds.map((name) => [name, found.filter((one) => one.kind === name).length]),
        ) as Record<(typeof expectedKinds)[number], number>,
        assets: found.slice(0, limit).map(({ at, reason, ...one }) => ({
          ...one,
          at: at.toISOString(),
          reason: shownReason(reason),
        })),
      };
    },
  };
}
