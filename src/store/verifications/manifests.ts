import { sql } from 'kysely';
import { wroteAny } from '../database/results.ts';
import type { Database } from '../database/schema.ts';

/** A manifest in the chain: the signed statement of what the copy had on a day. */
export interface Link {
  /** From 1. */
  number: number;
  /** `2026-01-31`. Of several on a day, the last one counts. */
  day: string;
  /** Of the text of the manifest. */
  sha256: string;
  /** The fingerprint of the key that signed it; null: none did. */
  keyId: string | null;
  /** Its object in the bucket, see verify/publish/chain.ts. */
  envelope: string;
}

/** The last one, and when it was added. */
export async function latest(db: Database) {
  const { rows } = await sql<Link & { addedAt: Date }>`
    SELECT number, day::text AS day, sha256, key_id, envelope, added_at FROM manifests
    ORDER BY number DESC LIMIT 1`.execute(db);
  return rows[0];
}

/** False: there is one with this number already. */
export async function append(db: Database, { number, day, sha256, keyId, envelope }: Link): Promise<boolean> {
  const result = await sql`
    INSERT INTO manifests (number, day, sha256, key_id, envelope)
    VALUES (${number}, ${day}::date, ${sha256}, ${keyId}, ${envelope}) ON CONFLICT DO NOTHING`.execute(db);
  return wroteAny(result);
}
