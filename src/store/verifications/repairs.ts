import { sql } from 'kysely';
import { notLeased } from '../assets/leases.ts';
import { invalidMedia } from '../assets/stored-file.ts';
import { wroteAny } from '../database/results.ts';
import type { Database, ObjectKind, Remedy } from '../database/schema.ts';

/** The media of these assets was read and is intact. Assets that have changed since are left alone. */
export async function verified(db: Database, seen: { id: string; lease: number }[]): Promise<void> {
  if (seen.length === 0) return;
  await sql`
    WITH same AS (
      SELECT a.id FROM assets a
      JOIN unnest(${seen.map(({ id }) => id)}::text[], ${seen.map(({ lease }) => lease)}::int[]) AS seen (id, lease)
        ON a.id = seen.id AND a.lease = seen.lease
      ORDER BY a.id FOR UPDATE OF a)
    UPDATE assets SET verified_at = now(), unverifiable_at = NULL FROM same WHERE assets.id = same.id`.execute(db);
}

interface IntactObject {
  id: string;
  lease: number;
  key: string;
}

/** Saves new ETags of objects whose content was read and is intact, as after a copy of the bucket. */
export async function copied(db: Database, objects: (IntactObject & { etag: string })[]): Promise<void> {
  for (const object of objects) await saveFact(db, object, 'etag', object.etag);
}

/** Saves content hashes of objects whose content was read and is intact. */
export async function hashed(db: Database, objects: (IntactObject & { sha256: string })[]): Promise<void> {
  for (const object of objects) await saveFact(db, object, 'sha256', object.sha256);
}

async function saveFact(db: Database, { id, lease, key }: IntactObject, name: 'etag' | 'sha256', fact: string) {
  const inMedia = name === 'sha256' ? ['checksums', name] : [name];
  const value = sql`to_jsonb(${fact}::text)`;
  await sql`
    UPDATE assets SET
      media = CASE WHEN media->>'key' = ${key} THEN jsonb_set(media, ${inMedia}::text[], ${value}) ELSE media END,
      sidecar_files = CASE WHEN sidecar_files ? ${key}
        THEN jsonb_set(sidecar_files, ${[key, name]}::text[], ${value}) ELSE sidecar_files END
    WHERE id = ${id} AND lease = ${lease}`.execute(db);
}

/**
 * Makes an asset due for repair of these objects. `moving`: it is queued or leased, and nothing changes. `held`: only its media is to be
 * repaired, and the library has another file, which may not replace it yet. Only `check` and `fetch` may lead to another download.
 */
export async function requestRepair(
  db: Database,
  id: string,
  objects: { kind: ObjectKind; remedy: Remedy }[],
): Promise<'requested' | 'moving' | 'held'> {
  const isHeld = sql<boolean>`EXISTS (SELECT FROM replacements WHERE asset_id = ${id} AND released_at IS NULL)`;
  const { rows } = await sql<{ held: boolean }>`SELECT ${isHeld} AS held`.execute(db);
  const what = objects.filter(({ kind }) => kind !== 'media' || !rows[0]!.held);
  if (what.length === 0) return 'held';
  const has = (kind: ObjectKind) => what.some((it) => it.kind === kind);
  const fetch = what.some((it) => it.remedy === 'fetch');
  const due = db
    .updateTable('assets')
    .set({
      nextAt: sql`now()`,
      attempts: 0,
      waits: 0,
      reason: null,
      ...(has('media') && { state: 'pending' as const }),
      ...(fetch && { media: sql`${invalidMedia}` }),
      ...(has('record') && !has('media') && { recordKey: null }),
      // A repair that is under way keeps its deadline, or it would never be given up.
      ...(has('transcript') && {
        transcriptState: 'pending' as const,
        transcriptDeadline: sql<Date | null>`CASE transcript_state WHEN 'pending' THEN transcript_deadline END`,
      }),
      ...(has('thumbnail') && { thumbnailState: 'pending' as const }),
    })
    .where('id', '=', id)
    .where('state', '=', 'mirrored')
    .where('queuedAt', 'is', null)
    .where(notLeased)
    .$if(has('media'), (query) => query.where(sql<boolean>`NOT ${isHeld}`))
    .returning(['id', 'syncId']);
  const data = JSON.stringify({ objects: what.map(({ kind }) => kind) });
  const result = await sql`
    WITH due AS (${due})
    INSERT INTO asset_history (asset_id, kind, sync_id, data)
    SELECT id, 'repaired', sync_id, ${data}::jsonb FROM due`.execute(db);
  return wroteAny(result) ? 'requested' : 'moving';
}
