import { isDeepStrictEqual } from 'node:util';
import { sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import { jsonb } from '../database/jsonb.ts';
import { recordset } from '../database/recordset.ts';
import type { Asset, AssetState, Database, ListedAsset, ThumbnailState, TranscriptState } from '../database/schema.ts';
import { addEvent } from '../events/add-event.ts';
import { erasedAmong, hashOfColumn } from '../removals/tombstones.ts';

/** The new state of a listed asset; undefined: nothing changes. */
export interface Decision {
  state: AssetState;
  reason: Reason | null;
  /** It starts over: attempts, waits and the time of the next try are reset. */
  reset: boolean;
  /** True: due now. False: with `reset`, nothing is due any more; without, the due time stays. */
  due: boolean;
  /**
   * The asset's new file would replace a stored file, so it is set aside until the company's listing ends. Any other decision
   * deletes what was set aside.
   */
  setAside?: boolean;
  /** The fields of the asset stay those of the stored file. */
  keepsFields?: boolean;
  transcriptState?: TranscriptState;
  thumbnailState?: ThumbnailState;
}
/** The fields of a known asset that a decision depends on. */
export type KnownAsset = Pick<
  Asset,
  | 'connectionId'
  | 'state'
  | 'reason'
  | 'skipped'
  | 'projectId'
  | 'assetType'
  | 'name'
  | 'size'
  | 'uploadDate'
  | 'listed'
  | 'media'
  | 'mirroredAt'
  | 'transcriptState'
  | 'thumbnailState'
> & {
  /** No connection can read the asset's company: if another company lists the asset, it has moved there. */
  stranded?: boolean;
  /** The new file that was set aside, as it was listed; `{}`: only a follow-up check has found it. */
  replacement?: { listed?: Record<string, unknown> } | null;
};
/** A known asset as a page locks it. */
export interface LockedAsset extends KnownAsset {
  id: string;
  companyId: string;
  stranded: boolean;
}

/** How much of a page was written. */
export interface Counts {
  new: number;
  changed: number;
  /** Whether a worker has to handle one of the assets. */
  hasWork: boolean;
  /** Replacements that were set aside. */
  setAside: number;
  /** Assets that are not recorded as listed: the database refuses a value, or another company has the id. */
  refused: { id: string; reason: Reason }[];
}
export type Decide = (
  before: KnownAsset | undefined,
  listed: ListedAsset,
  /** The connection's current settings. */
  settings: Record<string, unknown>,
) => Decision | undefined;

interface Row {
  asset: ListedAsset;
  decision: Decision;
  /** Names of the fields that have changed. */
  fields?: string[];
  /** No field has changed, as when a full sync retries a failed asset. It does not count as changed. */
  isRetry: boolean;
}

export interface ListedPage {
  syncId: string;
  connectionId: string;
  companyId: string;
  assets: ListedAsset[];
  known: Map<string, LockedAsset>;
  decide: (before: KnownAsset | undefined, listed: ListedAsset) => Decision | undefined;
}

/**
 * Writes the new assets of a page with one statement, and the changed ones with another. Erased assets are ignored. Assets
 * that a filter skips are recorded, but not counted. `page.known`: the assets in the records, locked.
 */
export async function writeAssets(tx: Database, page: ListedPage): Promise<Counts> {
  // If a page lists an asset twice, the last entry counts.
  const once = [...new Map(page.assets.map((asset) => [asset.id, asset])).values()];
  // An erased asset is gone in the records while it is being erased. After that it is not in the records: see `insert`.
  const gone = once.filter(({ id }) => page.known.get(id)?.state === 'gone');
  const erased = await erasedAmong(
    tx,
    gone.map(({ id }) => id),
  );
  const listed = once.filter(({ id }) => !erased.has(id));
  const fresh: Row[] = [];
  const changed: Row[] = [];
  const refused: Counts['refused'] = [];
  for (const asset of listed) {
    let before = page.known.get(asset.id);
    if (before && before.companyId !== page.companyId) {
      // Its former company no longer has it, or no connection can read that company. With the same file, it has moved here.
      const isFree = before.stranded || before.state === 'gone';
      // An unreadable listing says nothing about the file.
      const isAnother = asset.problem === undefined && isAnotherFile(before, asset);
      const isConflict = asset.problem === undefined && (!isFree || isAnother);
      if (isConflict) await reportConflict(tx, page, before.companyId, asset.id);
      if (!isFree) {
        if (isConflict) refused.push({ id: asset.id, reason: { code: 'id_conflict', companyId: before.companyId } });
        continue;
      }
      // The file in the bucket belongs to the other company.
      if (isAnother) before = { ...before, media: null };
    }
    const decision = page.decide(before, asset);
    if (!decision) continue;
    if (!before) fresh.push({ asset, decision, isRetry: false });
    // If the entry is unreadable or is not to be mirrored now, the asset keeps the fields that it has in the records.
    else {
      const isReadable = asset.problem === undefined;
      const keepsFields = !isReadable || decision.setAside || decision.keepsFields;
      const fields = isReadable ? differing(before.listed, asset.listed) : [];
      const isRetry = isReadable && fields.length === 0 && before.state !== 'gone' && !before.skipped;
      changed.push({ asset: keepsFields ? before : asset, decision, fields, isRetry });
    }
  }
  return {
    new: fresh.length && (await insert(tx, page, fresh)),
    changed: changed.length && (await update(tx, page, changed)),
    hasWork: [...fresh, ...changed].some(({ decision }) => decision.due),
    setAside: await setAside(tx, page, listed, changed),
    refused,
  };
}

/** What identifies the file of a replacement: its name or tags may change while it is held. */
const fileOf = (row: 'old' | 'excluded') => sql`(${sql.ref(row)}.listed->'size', ${sql.ref(row)}.listed->'uploadDate')`;

/** Saves the replacements that are set aside, and deletes those that the page no longer has. Returns how many were saved. */
async function setAside(tx: Database, page: ListedPage, listed: ListedAsset[], changed: Row[]): Promise<number> {
  const ids = new Set(changed.filter(({ decision }) => decision.setAside).map(({ asset }) => asset.id));
  const withdrawn = changed.flatMap(({ asset: { id } }) =>
    !ids.has(id) && page.known.get(id)?.replacement ? [id] : [],
  );
  if (withdrawn.length > 0) {
    await sql`
      DELETE FROM replacements WHERE asset_id = ANY(${withdrawn}::text[]) AND released_at IS NULL`.execute(tx);
  }
  if (ids.size === 0) return 0;
  const rows = listed.filter(({ id }) => ids.has(id)).map((asset) => ({ id: asset.id, asset }));
  await sql`
    INSERT INTO replacements AS old (asset_id, company_id, listed, sync_id)
    SELECT id, ${page.companyId}, asset, ${page.syncId} FROM ${recordset(rows)} AS r (id text, asset jsonb) ORDER BY id
    ON CONFLICT (asset_id) DO UPDATE SET company_id = excluded.company_id, listed = excluded.listed,
      sync_id = excluded.sync_id, released_at = NULL,
      found_at = CASE WHEN old.released_at IS NULL AND ${fileOf('old')} = ${fileOf('excluded')} THEN old.found_at ELSE now() END`.execute(
    tx,
  );
  return ids.size;
}

const isAnotherFile = (before: LockedAsset, asset: ListedAsset) =>
  before.size !== asset.size || before.uploadDate !== asset.uploadDate;

/** Adds an event, unless there is one for this asset and company. */
async function reportConflict(tx: Database, page: ListedPage, recordedFor: string, assetId: string): Promise<void> {
  const { connectionId, companyId } = page;
  const data = { companyId, recordedFor };
  const { rows } = await sql`
    SELECT FROM events WHERE asset_id = ${assetId} AND kind = 'asset.conflict' AND data = ${jsonb(data)}
    LIMIT 1`.execute(tx);
  if (rows.length === 0) await addEvent(tx, { kind: 'asset.conflict', connectionId, assetId, data });
}

/** Maximum number of changed fields that an entry of the history names. */
const mostFields = 20;

function differing(before: Record<string, unknown>, after: Record<string, unknown>): string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.filter((name) => !isDeepStrictEqual(before[name], after[name])).slice(0, mostFields);
}

async function insert(tx: Database, page: ListedPage, rows: Row[]): Promise<number> {
  // Another connection may have inserted an asset first. If that connection's filter skips it, this one takes it over.
  // An erasure may end while the page waits for its locks, and only this later statement sees that.
  const inserted = await sql<{ count: number }>`
    WITH r AS (SELECT * FROM ${decisionRows(rows, 'new')}), taken AS (INSERT INTO assets (id, connection_id, company_id, project_id, asset_type, name, size, upload_date, listed, state, reason,
      next_at, sync_id)
    SELECT r.id, ${page.connectionId}, ${page.companyId}, r.project_id, r.asset_type, r.name, r.size, r.upload_date, r.listed,
      r.state, r.reason, CASE WHEN r.due THEN now() END, ${page.syncId}
    FROM r WHERE NOT EXISTS (SELECT FROM tombstones WHERE hash = ${hashOfColumn('r.id')}) ORDER BY r.id
    ON CONFLICT (id) DO UPDATE SET connection_id = excluded.connection_id, state = excluded.state, reason = excluded.reason,
      next_at = excluded.next_at, sync_id = excluded.sync_id
      WHERE assets.skipped AND NOT excluded.skipped AND assets.company_id = excluded.company_id
    RETURNING id, skipped) ${logAndCount(page, 'new')}`.execute(tx);
  return inserted.rows[0]!.count;
}

async function update(tx: Database, page: ListedPage, rows: Row[]): Promise<number> {
  const { connectionId, companyId } = page;
  // An asset that only shares the id with one of another company has no objects yet: those in the bucket belong to the other.
  const isAnother = sql`a.company_id <> ${companyId} AND (a.size, a.upload_date) IS DISTINCT FROM (r.size, r.upload_date)`;
  // The record of the asset names the other company, so it is written again.
  const isMoved = sql`a.company_id <> ${companyId} AND r.state = 'mirrored'`;
  const resetIfAnother = (column: string, value: string) =>
    sql`${sql.ref(column)} = CASE WHEN ${isAnother} THEN ${sql.raw(value)} ELSE a.${sql.ref(column)} END`;
  // An asset on the queue stays with its connection; one that is not goes to the connection that can read it now.
  const updated = await sql<{ count: number }>`
    WITH r AS (SELECT * FROM ${decisionRows(rows, 'changed')}), taken AS (UPDATE assets AS a SET
      connection_id = CASE WHEN a.queued_at IS NULL THEN ${connectionId} ELSE a.connection_id END,
      -- Another company's asset is here only if that company no longer has it, so it has moved to this one.
      company_id = ${companyId},
      ${resetIfAnother('media', 'NULL')}, ${resetIfAnother('bytes', 'NULL')},
      record_key = CASE WHEN ${isAnother} OR ${isMoved} THEN NULL ELSE a.record_key END,
      ${resetIfAnother('thumbnail', 'NULL')}, ${resetIfAnother('transcript_keys', 'NULL')},
      ${resetIfAnother('sidecar_files', "'{}'")}, ${resetIfAnother('superseded', "'{}'")},
      ${resetIfAnother('earlier_keys', "'{}'")},
      ${resetIfAnother('mirrored_at', 'NULL')}, ${resetIfAnother('keeping_at', 'NULL')},
      project_id = r.project_id, asset_type = r.asset_type, name = r.name, size = r.size, upload_date = r.upload_date,
      listed = r.listed, revision = a.revision + 1, state = r.state, reason = r.reason, sync_id = ${page.syncId},
      next_at = CASE WHEN r.due OR ${isMoved} THEN now() WHEN r.reset THEN NULL ELSE a.next_at END,
      attempts = CASE WHEN r.reset THEN 0 ELSE a.attempts END,
      waits = CASE WHEN r.reset OR r.due THEN 0 ELSE a.waits END,
      processing_since = CASE WHEN r.reset THEN NULL ELSE a.processing_since END,
      transcript_state = coalesce(r.transcript_state, a.transcript_state),
      thumbnail_state = coalesce(r.thumbnail_state, a.thumbnail_state),
      transcript_deadline = CASE WHEN r.transcript_state IS NULL THEN a.transcript_deadline END
    FROM r WHERE a.id = r.id RETURNING a.id, a.skipped) ${logAndCount(page, 'changed')}`.execute(tx);
  return updated.rows[0]!.count;
}

/**
 * The rest of a statement that writes assets (`taken`): adds an entry to the history of each, and adds to the counts of the sync.
 * Returns how many assets count.
 */
const logAndCount = ({ syncId }: ListedPage, column: 'new' | 'changed') => sql`, logged AS (
      INSERT INTO asset_history (asset_id, kind, sync_id, data)
      SELECT taken.id, 'listed', ${syncId}, r.entry FROM taken JOIN r ON r.id = taken.id
    ), counted AS (
      SELECT count(*) FILTER (WHERE NOT taken.skipped AND NOT r.is_retry)::int AS count FROM taken JOIN r ON r.id = taken.id
    ), added AS (
      UPDATE syncs SET ${sql.ref(column)} = ${sql.ref(column)} + counted.count FROM counted
      WHERE id = ${syncId} AND counted.count <> 0
    ) SELECT count FROM counted`;

const decisionRows = (rows: Row[], news: 'new' | 'changed') => sql`
  ${recordset(
    rows.map(({ asset, decision, fields, isRetry }) => {
      const { id, projectId, assetType, name, size, uploadDate, listed } = asset;
      const { state, reason, due, reset, transcriptState = null, thumbnailState = null } = decision;
      const entry = {
        news,
        state,
        due,
        ...(decision.setAside && { replacement: 'set_aside' }),
        ...(reason !== null && { reason }),
        ...(fields && fields.length > 0 && { fields }),
      };
      return {
        id,
        projectId,
        assetType,
        name,
        size,
        uploadDate,
        listed,
        state,
        reason,
        due,
        reset,
        transcriptState,
        thumbnailState,
        isRetry,
        entry,
      };
    }),
  )} AS r (id text, project_id text, asset_type text, name text, size bigint, upload_date bigint, listed jsonb,
    state text, reason jsonb, due boolean, reset boolean, transcript_state text,
    thumbnail_state text, is_retry boolean, entry jsonb)`;
