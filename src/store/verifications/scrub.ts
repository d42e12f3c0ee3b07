import { type RawBuilder, sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import { wroteAny } from '../database/results.ts';
import type { Database, ObjectKind, Remedy } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent } from '../events/add-event.ts';
import { copied, hashed, requestRepair, verified } from './repairs.ts';

/** How fast files must be read back so that each is verified in time, and the lease of the one process that does so. */
export interface ScrubState {
  /** Weight per ms: see `Unverified`. */
  rate: number;
  /** Bytes per second at that rate. */
  bytesPerSecond: number;
  /** How many cannot be compared: archived, or damaged beyond repair. */
  unverifiable: number;
  /** Ms since the rate was computed, and since the last asset was read; null: never. */
  plannedMsAgo: number | null;
  readMsAgo: number | null;
}

/** The asset that was not verified for the longest time. */
export interface Unverified {
  id: string;
  /** The cost of reading the asset and its kept versions: their bytes, and the requests. */
  weight: number;
  /** How long ago, in ms. */
  ageMs: number;
}

/** The requests for an asset cost as much as this many bytes. */
const perAsset = 2 ** 20;

/** The deadlines of a cycle are grouped into this many parts. Overdue assets are read within one part. */
const parts = 20;

/** The objects of the kept versions of each asset, with the record of each version. */
const kept = sql`(
  SELECT asset_id, sum(jsonb_array_length(files) + 1) AS objects, sum(bytes) AS bytes FROM asset_versions GROUP BY asset_id
) AS kept ON kept.asset_id = assets.id`;

/** Worded like the indexes `assets_to_verify` and `assets_unverifiable`. */
const verifiable = sql`state IN ('mirrored', 'gone') AND media IS NOT NULL AND unverifiable_at IS NULL`;
const unverifiable = sql`state IN ('mirrored', 'gone') AND media IS NOT NULL AND unverifiable_at IS NOT NULL`;
const verifiedAt = sql<Date>`coalesce(verified_at, mirrored_at)`;
const ageOf = (at: RawBuilder<Date>) => sql<number>`(extract(epoch FROM now() - ${at}) * 1000)::float8`;

const state = sql`rate, bytes_per_second, unverifiable, ${ageOf(sql`planned_at`)} AS planned_ms_ago,
  ${ageOf(sql`read_at`)} AS read_ms_ago`;

/** Leases the scrub to `owner`. Undefined: another process has it. */
export async function take(db: Database, owner: string, leaseMs: number): Promise<ScrubState | undefined> {
  const { rows } = await sql<ScrubState>`
    INSERT INTO scrub (owner, until) VALUES (${owner}, ${inMs(leaseMs)})
    ON CONFLICT (single) DO UPDATE SET owner = excluded.owner, until = excluded.until
      WHERE scrub.until IS NULL OR scrub.until < now()
    RETURNING ${state}`.execute(db);
  return rows[0];
}

/** Extends the lease. False if it is lost. */
export async function renew(db: Database, owner: string, leaseMs: number): Promise<boolean> {
  return wroteAny(await sql`UPDATE scrub SET until = ${inMs(leaseMs)} WHERE owner = ${owner}`.execute(db));
}

export async function release(db: Database, owner: string): Promise<void> {
  await sql`UPDATE scrub SET owner = NULL, until = NULL WHERE owner = ${owner}`.execute(db);
}

/** Records that an asset was read, successfully or not. Undefined: the lease is lost. */
export async function assetRead(db: Database, owner: string): Promise<ScrubState | undefined> {
  const { rows } = await sql<ScrubState>`
    UPDATE scrub SET read_at = now() WHERE owner = ${owner} RETURNING ${state}`.execute(db);
  return rows[0];
}

/**
 * Computes the lowest constant rate that verifies each file within `cycleMs` of its last verification, the longest unverified
 * first. So files that were stored together are spread over the cycle. Reads all assets: seconds for a million.
 * Undefined: the lease is lost.
 */
export async function plan(db: Database, owner: string, cycleMs: number): Promise<ScrubState | undefined> {
  const partMs = cycleMs / parts;
  const { rows } = await sql<ScrubState>`
    WITH assets AS (
      SELECT ${ageOf(verifiedAt)} AS age, assets.bytes + coalesce(kept.bytes, 0) AS bytes, false AS unverifiable
      FROM assets LEFT JOIN ${kept} WHERE ${verifiable}
      UNION ALL
      SELECT ${ageOf(sql`unverifiable_at`)}, 0, true FROM assets WHERE ${unverifiable}
    ), grouped AS (
      SELECT least(greatest(ceil((${cycleMs}::float8 - age) / ${partMs}::float8), 1), ${parts}::int) AS part,
        sum(bytes)::float8 AS bytes, sum(bytes + ${perAsset}::int)::float8 AS weight,
        count(*) FILTER (WHERE unverifiable) AS unverifiable
      FROM assets GROUP BY part
    ), rates AS (
      SELECT sum(weight) OVER until / (part * ${partMs}::float8) AS rate,
        sum(bytes) OVER until / (part * ${partMs}::float8) * 1000 AS bytes_per_second, unverifiable
      FROM grouped WINDOW until AS (ORDER BY part)
    ), planned AS (
      SELECT coalesce(max(rate), 0) AS rate, coalesce(max(bytes_per_second), 0) AS bytes_per_second,
        coalesce(sum(unverifiable), 0)::bigint AS unverifiable FROM rates
    )
    UPDATE scrub SET (rate, bytes_per_second, unverifiable) = (SELECT * FROM planned), planned_at = now()
    WHERE owner = ${owner} RETURNING ${state}`.execute(db);
  return rows[0];
}

/** The asset to be read next, without these. */
export async function next(db: Database, except: string[]): Promise<Unverified | undefined> {
  const others = sql`id <> ALL(${except}::text[])`;
  const { rows } = await sql<Unverified>`
    SELECT id, weight, ${ageOf(sql`at`)} AS age_ms FROM (
      (SELECT id, coalesce(bytes, 0) + ${perAsset}::int
          + (SELECT coalesce(sum(v.bytes), 0)::bigint FROM asset_versions v WHERE v.asset_id = assets.id) AS weight,
          ${verifiedAt} AS at
        FROM assets WHERE ${verifiable} AND ${others} ORDER BY ${verifiedAt} LIMIT 1)
      UNION ALL
      (SELECT id, ${perAsset}::int, unverifiable_at FROM assets WHERE ${unverifiable} AND ${others} ORDER BY unverifiable_at LIMIT 1)
    ) AS heads ORDER BY at LIMIT 1`.execute(db);
  return rows[0];
}

/**
 * The bytes of this media cannot be compared: it is archived, or damaged and cannot be repaired, because it is gone from the library or
 * another file there waits for an operator. It is due a cycle later.
 */
export async function cannotVerify(db: Database, asset: { id: string; lease: number }): Promise<void> {
  await sql`
    UPDATE assets SET unverifiable_at = now() WHERE id = ${asset.id} AND lease = ${asset.lease}`.execute(db);
}

/** Whether any process transfers media now. */
export async function isTransferring(db: Database): Promise<boolean> {
  const { rows } = await sql<{ some: boolean }>`
    SELECT EXISTS (SELECT FROM assets WHERE queued_at IS NOT NULL AND state <> 'mirrored') AS some`.execute(db);
  return rows[0]!.some;
}

/** The state of the scrub, and the oldest "last verified" time of all files; null: there are no files. */
export async function progress(db: Database): Promise<{ scrub: ScrubState | undefined; oldest: Date | null }> {
  const { rows } = await sql<ScrubState>`SELECT ${state} FROM scrub`.execute(db);
  const { rows: oldest } = await sql<{ at: Date }>`
    SELECT ${verifiedAt} AS at FROM assets WHERE ${verifiable} ORDER BY ${verifiedAt} LIMIT 1`.execute(db);
  return { scrub: rows[0], oldest: oldest[0]?.at ?? null };
}

/** How many files there are to verify, with their sidecars and kept versions. Reads all assets. */
export async function sizes(db: Database) {
  const { rows } = await sql<{ assets: number; objects: number; bytes: number }>`
    SELECT count(*) AS assets, coalesce(sum(1 + sidecars.objects + coalesce(kept.objects, 0)), 0)::bigint AS objects,
      coalesce(sum(assets.bytes + sidecars.bytes + coalesce(kept.bytes, 0)), 0)::bigint AS bytes
    FROM assets CROSS JOIN LATERAL (
      SELECT count(*) AS objects, coalesce(sum((file.value->>'bytes')::bigint), 0) AS bytes
      FROM jsonb_each(sidecar_files) AS file) AS sidecars
    LEFT JOIN ${kept} WHERE ${verifiable}`.execute(db);
  return rows[0]!;
}

/** What the scrub found out about an asset. `damaged`: objects that are missing or different; `repairs`: how some of them are repaired. */
interface Found {
  verified: Parameters<typeof verified>[1];
  copied: Parameters<typeof copied>[1];
  hashed: Parameters<typeof hashed>[1];
  damaged: { key: string | null; text: string; reason: Reason }[];
  repairs: { kind: ObjectKind; remedy: Remedy }[];
  isUnreadable: boolean;
}

/**
 * Saves what the scrub found out about an asset in one transaction. Otherwise, a crash could lose the report of damage.
 * `isMoving`: a worker is changing the asset, so no repair is requested now. Then, or if an object could not be read, the asset stays
 * the longest unverified one.
 */
export async function save(
  db: Database,
  { id, connectionId }: { id: string; connectionId: string | null },
  found: Found,
): Promise<{ isRepairRequested: boolean; isMoving: boolean }> {
  const { damaged, repairs, isUnreadable } = found;
  return db.transaction().execute(async (tx) => {
    const repair = repairs.length > 0 ? await requestRepair(tx, id, repairs) : undefined;
    const [isRepairRequested, isMoving] = [repair === 'requested', repair === 'moving'];
    await verified(tx, isUnreadable || isMoving ? [] : found.verified);
    await copied(tx, found.copied);
    await hashed(tx, found.hashed);
    if (damaged.length > 0) {
      const data = { objects: damaged, repaired: isRepairRequested };
      await addEvent(tx, { kind: 'asset.damaged', connectionId, assetId: id, data });
    }
    return { isRepairRequested, isMoving };
  });
}
