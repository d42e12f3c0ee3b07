import { sql } from 'kysely';
import type { CompanyPosition, Database, Waits } from '../database/schema.ts';
import { type CompanyRun, positionOf, underLease } from './lease.ts';

/** Adds a wait that the library has asked for to the position of a company. Returns all since its last progress. @throws LeaseLost */
export const addWait = (db: Database, company: CompanyRun, wait: Omit<Waits, 'count'>): Promise<Waits> =>
  change(db, company, (before) => ({
    count: (before?.count ?? 0) + 1,
    ms: (before?.ms ?? 0) + wait.ms,
    reason: wait.reason,
  }));

/** The company makes progress, although no page of it is recorded. @throws LeaseLost */
export const forgetWaits = (db: Database, company: CompanyRun): Promise<undefined> =>
  change(db, company, () => undefined);

function change<W extends Waits | undefined>(
  db: Database,
  company: CompanyRun,
  next: (before: Waits | undefined) => W,
): Promise<W> {
  const { sync, companyId } = company;
  return underLease(db, company, async (tx) => {
    const { rows } = await sql<{ position: CompanyPosition | null }>`
      SELECT position->${companyId}::text AS position FROM syncs WHERE id = ${sync.id}`.execute(tx);
    const position = rows[0]?.position ?? {};
    const waits = next(position.waits);
    await sql`
      UPDATE syncs SET position = position || ${positionOf(companyId, { ...position, waits })}
      WHERE id = ${sync.id}`.execute(tx);
    return waits;
  });
}
