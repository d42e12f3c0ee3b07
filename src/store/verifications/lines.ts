import { sql } from 'kysely';
import { jsonb } from '../database/jsonb.ts';
import { recordset } from '../database/recordset.ts';
import { wroteAny } from '../database/results.ts';
import type {
  Database,
  ObjectKind,
  Remedy,
  VerificationCounts,
  VerificationLine,
  VerificationPosition,
} from '../database/schema.ts';
import { erasedAmong } from '../removals/tombstones.ts';

/**
 * Saves lines and the position after them in one transaction, without lines of assets that were erased meanwhile. False if
 * another process has taken the verification over.
 */
export async function save(
  db: Database,
  id: string,
  owner: string,
  found: { lines: VerificationLine[]; counts: VerificationCounts; position: VerificationPosition },
): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const result = await sql`
      UPDATE verifications SET counts = ${jsonb(found.counts)},
        position = ${jsonb(found.position)}, error = NULL
      WHERE id = ${id} AND owner = ${owner}`.execute(tx);
    if (!wroteAny(result)) return false;
    const erased = await erasedAmong(
      tx,
      found.lines.flatMap(({ assetId }) => assetId ?? []),
    );
    const lines = found.lines.filter(({ assetId }) => assetId === null || !erased.has(assetId));
    if (lines.length === 0) return true;
    const first = found.counts.lines - found.lines.length;
    await sql`
      INSERT INTO verification_lines
      SELECT ${id}, ${first} + r.ordinality, r.mark, r.key, r.asset_id, r.kind, r.remedy, r.reason, r.difference
      FROM ROWS FROM (${recordset(lines)}
        AS (mark text, key text, asset_id text, kind text, remedy text, reason jsonb, difference boolean))
        WITH ORDINALITY AS r (mark, key, asset_id, kind, remedy, reason, difference, ordinality)`.execute(tx);
    return true;
  });
}

/** A page of lines with numbers above `after`, in the order in which they were found. */
export async function lines(db: Database, id: string, page: { after: number; limit: number }) {
  const { rows } = await sql<VerificationLine & { number: number }>`
    SELECT number, mark, key, asset_id, kind, remedy, reason, difference FROM verification_lines
    WHERE verification_id = ${id} AND number > ${page.after} ORDER BY number LIMIT ${page.limit}`.execute(db);
  return rows;
}

/** The objects to repair, by asset: a page in the order of asset ids. */
export async function remedies(db: Database, id: string, page: { after: string; limit: number }) {
  const { rows } = await sql<{ assetId: string; what: { kind: ObjectKind; remedy: Remedy }[] }>`
    SELECT asset_id, jsonb_agg(jsonb_build_object('kind', kind, 'remedy', remedy)) AS what
    FROM verification_lines
    WHERE verification_id = ${id} AND remedy IS NOT NULL AND asset_id > ${page.after}
    GROUP BY asset_id ORDER BY asset_id LIMIT ${page.limit}`.execute(db);
  return rows;
}
