import { sql } from 'kysely';
import type {
  Database,
  ObjectKind,
  Remedy,
  VerificationCounts,
  VerificationLine,
  VerificationPosition,
} from '../database/schema.ts';

/** What was found, and with it where the run goes on, in one transaction. False when another process has it. */
export async function save(
  db: Database,
  id: string,
  owner: string,
  found: { lines: VerificationLine[]; counts: VerificationCounts; position: VerificationPosition },
): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const { numUpdatedRows } = await tx
      .updateTable('verifications')
      .set({
        counts: JSON.stringify(found.counts) as never,
        position: JSON.stringify(found.position) as never,
        error: null,
      })
      .where('id', '=', id)
      .where('owner', '=', owner)
      .executeTakeFirst();
    if (numUpdatedRows === 0n) return false;
    if (found.lines.length === 0) return true;
    const first = found.counts.lines - found.lines.length;
    await sql`
      INSERT INTO verification_lines
      SELECT ${id}, ${first} + r.ordinality, r.mark, r.key, r.asset_id, r.kind, r.remedy, r.text, r.difference
      FROM ROWS FROM (jsonb_to_recordset(${JSON.stringify(
        found.lines.map(({ assetId, ...line }) => ({ ...line, asset_id: assetId })),
      )}::jsonb) AS (mark text, key text, asset_id text, kind text, remedy text, text text, difference boolean))
        WITH ORDINALITY AS r (mark, key, asset_id, kind, remedy, text, difference, ordinality)`.execute(tx);
    return true;
  });
}

/** A page of its lines behind the `after`th, in the order in which they were found. */
export async function lines(
  db: Database,
  id: string,
  page: { after: number; limit: number },
): Promise<(VerificationLine & { number: number })[]> {
  return db
    .selectFrom('verificationLines')
    .select(['number', 'mark', 'key', 'assetId', 'kind', 'remedy', 'text', 'difference'])
    .where('verificationId', '=', id)
    .where('number', '>', page.after)
    .orderBy('number')
    .limit(page.limit)
    .execute();
}

/** What is to be done about assets, a page of them by id. */
export async function remedies(
  db: Database,
  id: string,
  page: { after: string; limit: number },
): Promise<{ assetId: string; what: { kind: ObjectKind; remedy: Remedy }[] }[]> {
  const { rows } = await sql<{ assetId: string; what: { kind: ObjectKind; remedy: Remedy }[] }>`
    SELECT asset_id, jsonb_agg(jsonb_build_object('kind', kind, 'remedy', remedy)) AS what
    FROM verification_lines
    WHERE verification_id = ${id} AND remedy IS NOT NULL AND asset_id > ${page.after}
    GROUP BY asset_id ORDER BY asset_id LIMIT ${page.limit}`.execute(db);
  return rows;
}
