import type { Dated, Held } from '../content.ts';
import type { World } from '../world.ts';
import type { Finding } from './finding.ts';

export interface Marks {
  marks: { user: string; company: string; highWaterMark: number }[];
  ids: Set<string>;
}

/** High-water marks and records, read at once. */
export async function readMarks(world: World): Promise<Marks> {
  const [row] = await world.query<{ marks: Marks['marks'] | null; ids: string[] | null }>(`SELECT
    (SELECT json_agg(json_build_object('user', c.user_id, 'company', a.company_id, 'highWaterMark', a.high_water_mark))
      FROM access a JOIN connections c ON c.id = a.connection_id WHERE a.high_water_mark IS NOT NULL) AS marks,
    (SELECT array_agg(id) FROM assets) AS ids`);
  return { marks: row!.marks ?? [], ids: new Set(row!.ids) };
}

/**
 * A high-water mark is the date of some asset that was listed. All assets that were uploaded before that one, with an earlier date, were in the same
 * listing or an earlier one, so they must be in the records. Assets dated back beyond the overlap are exempt.
 */
export function marks({ marks, ids }: Marks, dates: Dated[], held: Map<string, Held>, when: string): Finding {
  const problems: string[] = [];
  for (const { user, company, highWaterMark } of marks) {
    const order = dates.findIndex(({ companyId, date }) => companyId === company && date === highWaterMark);
    if (order < 0)
      problems.push(
        `${when}: the high-water mark of ${user} at ${company} is ${highWaterMark}, which is no asset's date`,
      );
    for (const { id, companyId, date } of dates.slice(0, Math.max(0, order))) {
      const asset = held.get(id)!;
      const exempt = asset.removed || asset.versions.length > 1 || asset.plan.date.kind === 'late';
      if (companyId === company && date < highWaterMark && !exempt && !ids.has(id)) {
        problems.push(`${when}: the high-water mark of ${user} at ${company} is ahead of ${id}, which is in no record`);
      }
    }
  }
  return { what: 'no high-water mark is ahead of the records', seen: `${marks.length} high-water marks`, problems };
}
