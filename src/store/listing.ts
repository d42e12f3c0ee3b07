import { isDeepStrictEqual } from 'node:util';
import { sql } from 'kysely';
import type { Asset, AssetState, Database, ThumbnailState, TranscriptState } from './schema.ts';

/** An asset as a page of the listing had it, or the reason why it cannot be read. */
export interface ListedAsset {
  id: string;
  projectId: string | null;
  assetType: string | null;
  name: string | null;
  size: number | null;
  uploadDate: number | null;
  /** Without signed links; `hasThumbnail` in place of its link. */
  listed: Record<string, unknown>;
  /** What of it breaks the API's schema. */
  problem?: string;
}

/** What a listing makes of an asset; undefined: nothing new. */
export interface Decision {
  state: AssetState;
  reason: string | null;
  /** Start over: attempts and deadlines as on the first day. */
  afresh: boolean;
  /** Something is to be done for it now. */
  due: boolean;
  /** The setting that leaves it out: then nothing is due. */
  leftOut?: string;
  transcriptState?: TranscriptState;
  thumbnailState?: ThumbnailState;
}
/** What of a known asset a decision goes by. */
export type KnownAsset = Pick<
  Asset,
  | 'connectionId'
  | 'state'
  | 'reason'
  | 'leftOut'
  | 'name'
  | 'size'
  | 'uploadDate'
  | 'listed'
  | 'media'
  | 'mirroredAt'
  | 'transcriptState'
  | 'thumbnailState'
>;
/** What of a page was written. */
export interface Counts {
  new: number;
  changed: number;
  again: number;
}
export type Decide = (before: KnownAsset | undefined, listed: ListedAsset) => Decision | undefined;

interface Row {
  asset: ListedAsset;
  decision: Decision;
  /** Names of what the listing has otherwise than before. */
  fields?: string[];
  /** Nothing of it is other than before: it is only asked for again, as what has failed is by a full run. */
  again?: boolean;
}

/**
 * Takes a page of a listing into the records: one statement reads the assets that are known, one writes the new ones, one
 * the changed. A page without news costs the one read. What is left out is recorded, and not counted; `again` are those that
 * the library has as before, and that are asked for again.
 */
export async function recordListed(
  tx: Database,
  page: { syncId: string; connectionId: string; companyId: string; assets: ListedAsset[]; decide: Decide },
): Promise<Counts> {
  // A page may name an asset twice; the last word counts.
  const listed = [...new Map(page.assets.map((asset) => [asset.id, asset])).values()];
  if (listed.length === 0) return { new: 0, changed: 0, again: 0 };
  const ids = listed.map((asset) => asset.id);
  const rows = await tx.selectFrom('assets').selectAll().where('id', 'in', ids).orderBy('id').forUpdate().execute();
  const known = new Map(rows.map((asset) => [asset.id, asset]));

  const fresh: Row[] = [];
  const changed: Row[] = [];
  for (const asset of listed) {
    const before = known.get(asset.id);
    const decision = page.decide(before, asset);
    if (!decision) continue;
    if (!before) fresh.push({ asset, decision });
    // What cannot be read replaces nothing that could.
    else {
      const kept = asset.problem === undefined ? asset : { ...asset, ...listedBefore(before) };
      const fields = differing(before.listed, kept.listed);
      const isSame = fields.length === 0 && asset.problem === undefined;
      const again = isSame && before.state !== 'gone' && !before.leftOut;
      changed.push({ asset: kept, decision, fields, again });
    }
  }
  const inserted = fresh.length && (await insert(tx, page, fresh));
  const updated = changed.length && (await update(tx, page, changed));
  const again = changed.filter((row) => row.again && !row.decision.leftOut).length;
  return { new: inserted, changed: updated - again, again };
}

/** So many names of fields are told. */
const mostFields = 20;

function differing(before: Record<string, unknown>, after: Record<string, unknown>): string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.filter((name) => !isDeepStrictEqual(before[name], after[name])).slice(0, mostFields);
}

const listedBefore = ({ projectId, assetType, name, size, uploadDate, listed }: Asset) => ({
  projectId,
  assetType,
  name,
  size,
  uploadDate,
  listed,
});

async function insert(
  tx: Database,
  page: { syncId: string; connectionId: string; companyId: string },
  rows: Row[],
): Promise<number> {
  // Another connection that reads the same company may have been first; what that one leaves out is this one's.
  const inserted = await sql<{ leftOut: string | null }>`
    WITH r AS (SELECT * FROM ${recordset(rows, 'new')}), taken AS (INSERT INTO assets (id, connection_id, company_id, project_id, asset_type, name, size, upload_date, listed, state, reason,
      left_out, next_at, sync_id)
    SELECT r.id, ${page.connectionId}, ${page.companyId}, r.project_id, r.asset_type, r.name, r.size, r.upload_date, r.listed,
      r.state, r.reason, r.left_out, CASE WHEN r.due THEN now() END, ${page.syncId}
    FROM r ORDER BY r.id
    ON CONFLICT (id) DO UPDATE SET connection_id = excluded.connection_id, state = excluded.state, reason = excluded.reason,
      left_out = NULL, next_at = excluded.next_at, sync_id = excluded.sync_id
      WHERE assets.left_out IS NOT NULL AND excluded.left_out IS NULL
    RETURNING id, left_out) ${tell(page)}`.execute(tx);
  return wanted(inserted.rows);
}

async function update(
  tx: Database,
  page: { syncId: string; connectionId: string; companyId: string },
  rows: Row[],
): Promise<number> {
  const { connectionId, companyId } = page;
  // An asset on the queue stays with its connection; one that is not goes to the connection that can read it now.
  const updated = await sql<{ leftOut: string | null }>`
    WITH r AS (SELECT * FROM ${recordset(rows, 'changed')}), taken AS (UPDATE assets AS a SET
      connection_id = CASE WHEN a.queued_at IS NULL THEN ${connectionId} ELSE a.connection_id END,
      -- Listed elsewhere now, and no longer where it was: it has moved.
      company_id = CASE WHEN EXISTS (SELECT 1 FROM access x WHERE x.company_id = a.company_id AND x.lost_at IS NULL)
        THEN a.company_id ELSE ${companyId} END,
      project_id = r.project_id, asset_type = r.asset_type, name = r.name, size = r.size, upload_date = r.upload_date,
      listed = r.listed, revision = a.revision + 1, state = r.state, reason = r.reason,
      left_out = r.left_out, sync_id = ${page.syncId},
      next_at = CASE WHEN r.due THEN now() WHEN r.afresh THEN NULL ELSE a.next_at END,
      attempts = CASE WHEN r.afresh THEN 0 ELSE a.attempts END,
      waits = CASE WHEN r.afresh OR r.due THEN 0 ELSE a.waits END,
      processing_since = CASE WHEN r.afresh THEN NULL ELSE a.processing_since END,
      transcript_state = coalesce(r.transcript_state, a.transcript_state),
      thumbnail_state = coalesce(r.thumbnail_state, a.thumbnail_state),
      transcript_deadline = CASE WHEN r.transcript_state IS NULL THEN a.transcript_deadline END
    FROM r WHERE a.id = r.id RETURNING a.id, a.left_out) ${tell(page)}`.execute(tx);
  return wanted(updated.rows);
}

/** What was decided is told of each asset, in the statement that writes it. */
const tell = ({ syncId }: { syncId: string }) => sql`, told AS (
    INSERT INTO happenings (asset_id, kind, sync_id, data)
    SELECT taken.id, 'listed', ${syncId}, r.told FROM taken JOIN r ON r.id = taken.id)
    SELECT left_out FROM taken`;

const wanted = (rows: { leftOut: string | null }[]) => rows.filter((row) => row.leftOut === null).length;

const recordset = (rows: Row[], news: 'new' | 'changed') => sql`
  jsonb_to_recordset(${JSON.stringify(
    rows.map(({ asset, decision, fields }) => ({
      id: asset.id,
      project_id: asset.projectId,
      asset_type: asset.assetType,
      name: asset.name,
      size: asset.size,
      upload_date: asset.uploadDate,
      listed: asset.listed,
      state: decision.state,
      reason: decision.reason,
      due: decision.due,
      afresh: decision.afresh,
      left_out: decision.leftOut ?? null,
      transcript_state: decision.transcriptState ?? null,
      thumbnail_state: decision.thumbnailState ?? null,
      told: {
        news,
        state: decision.state,
        due: decision.due,
        ...(decision.reason !== null && { reason: decision.reason }),
        ...(fields && fields.length > 0 && { fields }),
      },
    })),
  )}::jsonb) AS r (id text, project_id text, asset_type text, name text, size bigint, upload_date bigint, listed jsonb,
    state text, reason text, due boolean, afresh boolean, left_out text, transcript_state text,
    thumbnail_state text, told jsonb)`;
