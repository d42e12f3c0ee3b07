import { type RawBuilder, sql } from 'kysely';
import type { Database, Sync, SyncPosition } from './schema.ts';
import { leaseHeld, turnLost } from './sync-lease.ts';

/** A page of a company's listing without news: all of it is known, and nothing is to be done for any of it. */
export interface QuietPage {
  sync: Sync;
  owner: string;
  leaseMs: number;
  companyId: string;
  seen: number;
  /** Where the run goes on. */
  position: SyncPosition;
  /** The listing of the company is complete: its mark moves, and never back. */
  mark?: number | null;
}

/**
 * Writes where the run goes on, in one statement.
 * @throws TurnLost
 */
export async function passPage(db: Database, page: QuietPage): Promise<void> {
  const { sync, owner } = page;
  const { rows } = await sql`
    WITH held AS (${leaseHeld(sync.connectionId, owner, page.leaseMs)} RETURNING id),
    run AS (
      UPDATE syncs SET position = ${JSON.stringify(page.position)}::jsonb, ${passed(page)}
      FROM held WHERE syncs.id = ${sync.id}
    ), moved AS (${moveMark(page, sql`held`)})
    SELECT FROM held /* prepared: pass_page */`.execute(db);
  if (rows.length === 0) throw turnLost(sync.connectionId);
}

/** What of it is counted in a row of `syncs`. */
export const passed = ({ seen }: QuietPage) => sql`pages = pages + 1, seen = seen + ${seen}::int`;

/** `held`: a table with a row if the lease is still the run's. */
export const moveMark = ({ sync, companyId, mark = null }: QuietPage, held: RawBuilder<unknown>) => sql`
  UPDATE access SET mark = ${mark}::bigint FROM ${held}
  WHERE connection_id = ${sync.connectionId} AND company_id = ${companyId} AND (mark IS NULL OR mark < ${mark}::bigint)`;
