import { sql } from 'kysely';
import { wroteAny } from '../database/results.ts';
import type { Database, ObjectKind, Remedy } from '../database/schema.ts';

/** Their media was read, and is what was stored: unless it has changed since. */
export async function verified(db: Database, seen: { id: string; lease: number }[]): Promise<void> {
  if (seen.length === 0) return;
  // In the order of ids, as all that locks several assets: so nobody waits in a circle.
  await sql`
    WITH same AS (
      SELECT a.id FROM assets a
      JOIN unnest(${seen.map(({ id }) => id)}::text[], ${seen.map(({ lease }) => lease)}::int[]) AS seen (id, lease)
        ON a.id = seen.id AND a.lease = seen.lease
      ORDER BY a.id FOR UPDATE OF a)
    UPDATE assets SET verified_at = now() FROM same WHERE assets.id = same.id`.execute(db);
}

/** The store calls these objects otherwise than it did, as after a copy, and their content is right: it is read once. */
export async function copied(
  db: Database,
  objects: { id: string; lease: number; key: string; etag: string }[],
): Promise<void> {
  for (const { id, lease, key, etag } of objects) {
    await sql`
      UPDATE assets SET
        media = CASE WHEN media->>'key' = ${key} THEN jsonb_set(media, '{etag}', to_jsonb(${etag}::text)) ELSE media END,
        sidecar_files = CASE WHEN sidecar_files ? ${key}
          THEN jsonb_set(sidecar_files, ARRAY[${key}::text, 'etag'], to_jsonb(${etag}::text)) ELSE sidecar_files END
      WHERE id = ${id} AND lease = ${lease}`.execute(db);
  }
}

/**
 * Has what is missing or wrong in the bucket made again. Of what is on its way nothing is changed: false. Only `check` and
 * `fetch` may lead to another download; the rest is written again as it is.
 */
export async function mend(db: Database, id: string, what: { kind: ObjectKind; remedy: Remedy }[]): Promise<boolean> {
  const has = (kind: ObjectKind) => what.some((it) => it.kind === kind);
  const fetch = what.some((it) => it.remedy === 'fetch');
  const mended = db
    .updateTable('assets')
    .set({
      nextAt: sql`now()`,
      attempts: 0,
      waits: 0,
      reason: null,
      ...(has('media') && { state: 'pending' as const }),
      // Another version than any: so nothing takes what is there for the right one.
      ...(fetch && { media: sql`media || '{"version": ""}'` }),
      ...(has('record') && !has('media') && { recordKey: null }),
      ...(has('transcript') && { transcriptState: 'pending' as const, transcriptDeadline: null }),
      ...(has('thumbnail') && { thumbnailState: 'pending' as const }),
    })
    .where('id', '=', id)
    .where('state', '=', 'mirrored')
    .where('queuedAt', 'is', null)
    .where((e) => e.or([e('leaseUntil', 'is', null), e('leaseUntil', '<', sql<Date>`now()`)]))
    .returning(['id', 'syncId']);
  const told = JSON.stringify({ objects: what.map(({ kind }) => kind) });
  const result = await sql`
    WITH mended AS (${mended})
    INSERT INTO asset_history (asset_id, kind, sync_id, data)
    SELECT id, 'repaired', sync_id, ${told}::jsonb FROM mended`.execute(db);
  return wroteAny(result);
}
