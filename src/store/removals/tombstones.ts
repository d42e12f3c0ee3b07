import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import { recordset } from '../database/recordset.ts';
import type { Database } from '../database/schema.ts';

/** An asset that was erased on purpose: it is never mirrored again. */
export interface Tombstone {
  /** Of the asset's id. */
  hash: string;
  /** When its erasure last began; until then, when it was requested. */
  erasedAt: Date;
  erasedBy: string;
  reason: string;
}

/** The SHA-256 of an asset's id, lower-case hex: what is kept of it. */
export const hashOf = (assetId: string) => createHash('sha256').update(assetId, 'utf8').digest('hex');

/** `hashOf` for a column of asset ids. */
export const hashOfColumn = (column: string) =>
  sql<string>`encode(sha256(convert_to(${sql.ref(column)}, 'UTF8')), 'hex')`;

/** Returns the ids of these assets that were erased. */
export async function erasedAmong(db: Database, assetIds: string[]): Promise<Set<string>> {
  if (assetIds.length === 0) return new Set();
  const byHash = new Map(assetIds.map((id) => [hashOf(id), id]));
  const { rows } = await sql<{ hash: string }>`
    SELECT hash FROM tombstones WHERE hash = ANY(${[...byHash.keys()]}::text[])`.execute(db);
  return new Set(rows.map(({ hash }) => byHash.get(hash)!));
}

export async function tombstone(db: Database, assetId: string): Promise<Tombstone | undefined> {
  const { rows } = await sql<Tombstone>`SELECT * FROM tombstones WHERE hash = ${hashOf(assetId)}`.execute(db);
  return rows[0];
}

/** An attempt to erase an asset begins: an inventory that lists its objects is older than its tombstone. */
export async function beginErasing(db: Database, hash: string): Promise<Tombstone | undefined> {
  const { rows } = await sql<Tombstone>`
    UPDATE tombstones SET erased_at = now() WHERE hash = ${hash} RETURNING *`.execute(db);
  return rows[0];
}

/** A page of all tombstones, by hash. */
export async function tombstones(db: Database, page: { after: string; limit: number }): Promise<Tombstone[]> {
  const { rows } = await sql<Tombstone>`
    SELECT * FROM tombstones WHERE hash > ${page.after} ORDER BY hash LIMIT ${page.limit}`.execute(db);
  return rows;
}

/** Adds tombstones that were found in the bucket. */
export async function restoreTombstones(db: Database, found: Tombstone[]): Promise<void> {
  if (found.length === 0) return;
  await sql`
    INSERT INTO tombstones (hash, erased_at, erased_by, reason)
    SELECT hash, erased_at, erased_by, reason
    FROM ${recordset(found)} AS found (hash text, erased_at timestamptz, erased_by text, reason text)
    ON CONFLICT DO NOTHING`.execute(db);
}
