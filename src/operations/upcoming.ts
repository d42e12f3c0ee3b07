import { z } from 'zod';
import { type Expected, expectedKinds, mostCounted } from '../store/assets/upcoming.ts';
import type { OperationsDeps } from './deps.ts';
import { count, time } from './fields.ts';
import { numberIn, rowsOfPage } from './pages.ts';

export const upcomingQuery = z.strictObject({
  minutes: numberIn(1, 1440, 60),
  limit: rowsOfPage(50),
});
export type UpcomingQuery = z.input<typeof upcomingQuery>;

const kind = z
  .enum(expectedKinds)
  .describe(
    'A video that is transcoded, a transcript or thumbnail that may have come, an asset put off after an error.',
  );

export const upcomingAnswer = z
  .object({
    counts: z
      .object(
        Object.fromEntries(expectedKinds.map((name) => [name, count])) as Record<
          (typeof expectedKinds)[number],
          typeof count
        >,
      )
      .describe(`How many of each; there may be more than ${mostCounted}, which are not counted.`),
    assets: z
      .array(
        z.object({
          assetId: z.string(),
          name: z.string().nullable(),
          connectionId: z.string().nullable(),
          kind,
          at: time.describe('When it is looked at again.'),
          reason: z.string().nullable(),
        }),
      )
      .describe('Soonest first.'),
  })
  .meta({ id: 'Upcoming' });

/** One look does for everybody who watches, for so long. */
const freshMs = 10_000;

export function upcomingOperations({ store }: Pick<OperationsDeps, 'store'>) {
  const looks = new Map<number, { at: number; found: Promise<Expected[]> }>();
  function look(minutes: number): Promise<Expected[]> {
    const now = performance.now();
    for (const [key, { at }] of looks) if (now - at > freshMs) looks.delete(key);
    const last = looks.get(minutes);
    if (last) return last.found;
    const found = store.forecast.within(minutes * 60_000);
    looks.set(minutes, { at: now, found });
    found.catch(() => looks.delete(minutes));
    return found;
  }

  return {
    /** What is looked at again soon: videos that are transcoded, transcripts and thumbnails, what was put off. */
    async upcoming(query: UpcomingQuery = {}) {
      const { minutes, limit } = upcomingQuery.parse(query);
      const found = (await look(minutes)).filter(({ at }) => at.getTime() > Date.now());
      return {
        counts: Object.fromEntries(
          expectedKinds.map((name) => [name, found.filter((one) => one.kind === name).length]),
        ) as Record<(typeof expectedKinds)[number], number>,
        assets: found.slice(0, limit).map(({ at, ...one }) => ({ ...one, at: at.toISOString() })),
      };
    },
  };
}
