import { z } from 'zod';
import type { Minute } from '../../store/counts/throughput.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, time } from '../fields.ts';

const minute = 60_000;

const ranges = {
  hour: { span: 60 * minute, step: minute },
  day: { span: 24 * 60 * minute, step: 15 * minute },
  week: { span: 7 * 24 * 60 * minute, step: 120 * minute },
};

export const historyQuery = z.strictObject({ range: z.enum(['hour', 'day', 'week']).default('hour') });

export const historyAnswer = z
  .object({
    step: count.describe('Seconds from one point to the next.'),
    points: z
      .array(
        z.object({
          at: time.describe('When the step begins.'),
          assets: count.describe('Assets mirrored in the step.'),
          bytes: count,
          failed: count.describe('Assets that failed in the step.'),
        }),
      )
      .describe('Oldest first; the last one is incomplete.'),
    complete: z.boolean().describe('false: older points are still being counted; ask again soon.'),
  })
  .meta({ id: 'History' });

/** Older minutes do not change any more: no transaction is open for so long. */
const settledMs = 2 * minute;
/** How long one answer may spend on minutes that were not read before. */
const budgetMs = 40;
const widest = ranges.week.span;

/**
 * Assets mirrored and failed per minute. Each minute is read from the database once, newest first, and cached. An answer
 * reads new minutes, and as many older ones as it has time for.
 */
export function historyOperations({ store }: Pick<OperationsDeps, 'store'>) {
  const known = new Map<number, Minute>();
  /** Every minute from `from` until before `to` is known. */
  let from = 0;
  let to = 0;
  let last: Promise<unknown> = Promise.resolve();

  async function read(start: number, end: number): Promise<void> {
    for (const row of await store.throughput.minutes(start, end)) known.set(row.minute, row);
  }

  /** Reads old minutes back to `wanted`, as far as the time allows. Returns the recent minutes, which may still change. */
  async function readUntil(wanted: number, now: number): Promise<Minute[]> {
    const settled = floor(now - settledMs, minute);
    if (to < settled - ranges.hour.span || to > settled) {
      known.clear();
      from = to = settled;
    }
    if (to < settled) {
      await read(to, settled);
      to = settled;
    }
    const began = performance.now();
    for (let width = 15 * minute; from > wanted && performance.now() - began < budgetMs; ) {
      const before = performance.now();
      const start = Math.max(wanted, from - width);
      await read(start, from);
      from = start;
      width = widthAfter(width, performance.now() - before);
    }
    for (const key of known.keys()) if (key < now - widest - ranges.week.step) known.delete(key);
    return store.throughput.minutes(to, now + minute);
  }

  return {
    /** Assets mirrored and failed over time. */
    async history(query: z.input<typeof historyQuery> = {}) {
      const { span, step } = ranges[historyQuery.parse(query).range];
      const now = Date.now();
      const start = floor(now, step) - span + step;
      const reading = last.then(() => readUntil(start, now));
      last = reading.catch(() => {});
      const recent = await reading;
      const points = Array.from({ length: span / step }, (_, i) => ({
        at: new Date(start + i * step).toISOString(),
        assets: 0,
        bytes: 0,
        failed: 0,
      }));
      for (const row of [...known.values(), ...recent]) {
        const point = points[Math.floor((row.minute - start) / step)];
        if (!point) continue;
        point.assets += row.assets;
        point.bytes += row.bytes;
        point.failed += row.failed;
      }
      return { step: step / 1000, points, complete: from <= start };
    },
  };
}

/** The next window is wider if this one was read fast, and narrower if not. Whole minutes, because none may be in two windows. */
export const widthAfter = (width: number, ms: number) =>
  ms < budgetMs / 8 ? width * 4 : Math.max(minute, floor(width / 4, minute));

const floor = (time: number, step: number) => Math.floor(time / step) * step;
