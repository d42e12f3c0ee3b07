import { isDeepStrictEqual } from 'node:util';
import { sql } from 'kysely';
import type { Connection, Database } from '../database/schema.ts';
import { addEvent, notify } from '../events/events.ts';

/** An asset that changed settings may let in or skip. */
export interface SelectableRow {
  id: string;
  connectionId: string | null;
  companyId: string;
  projectId: string | null;
  assetType: string | null;
  skipped: string | null;
}

/** Settings of connections, and what they skip: rows that are pending while nothing is due for them. */
export function filterRecords(db: Database) {
  return {
    /**
     * Changes the settings of a connection, and tells all processes. With `applyFilters`, its assets are to be held against them.
     * Undefined: there is no such connection.
     */
    async change(
      connectionId: string,
      change: Record<string, unknown>,
      next: (before: Record<string, unknown>) => { settings: Record<string, unknown>; applyFilters: boolean },
    ): Promise<Connection | undefined> {
      return db.transaction().execute(async (tx) => {
        const before = await tx
          .selectFrom('connections')
          .select('settings')
          .where('id', '=', connectionId)
          .forUpdate()
          .executeTakeFirst();
        if (!before) return undefined;
        const { settings, applyFilters } = next(before.settings);
        const after = await tx
          .updateTable('connections')
          .set({ settings: JSON.stringify(settings) as never, ...(applyFilters && { filtersPending: true }) })
          .where('id', '=', connectionId)
          .returningAll()
          .executeTakeFirstOrThrow();
        await addEvent(tx, { kind: 'connection.changed', connectionId, data: change });
        await notify(tx, { connectionId });
        return after;
      });
    },

    /**
     * What the environment selects, as the process says that started last. When that is another than before, the assets of all
     * connections are to be held against it. Returns whether they are.
     */
    async changeDefaults(defaults: { includeTypes: string[]; excludeTypes: string[] }): Promise<boolean> {
      const name = 'filters';
      const value = { include: [...defaults.includeTypes].sort(), exclude: [...defaults.excludeTypes].sort() };
      const text = JSON.stringify(value);
      return db.transaction().execute(async (tx) => {
        const before = await tx
          .selectFrom('settings')
          .select('value')
          .where('name', '=', name)
          .forUpdate()
          .executeTakeFirst();
        if (isDeepStrictEqual(before?.value, value)) return false;
        await tx
          .insertInto('settings')
          .values({ name, value: text })
          .onConflict((it) => it.column('name').doUpdateSet({ value: text }))
          .execute();
        if (!before) return false;
        await tx
          .updateTable('connections')
          .set({ filtersPending: true })
          .where('status', '<>', 'disconnected')
          .execute();
        return true;
      });
    },

    /** Connections whose assets are still to be held against changed settings. */
    async unsettled(): Promise<string[]> {
      const { rows } = await sql<{ id: string }>`
        SELECT id FROM connections WHERE filters_pending AND status <> 'disconnected' ORDER BY id`.execute(db);
      return rows.map((row) => row.id);
    },

    /** All were held against these settings; nothing happens when they are others by now. */
    async settled(connectionId: string, settings: Record<string, unknown>): Promise<void> {
      await sql`
        UPDATE connections SET filters_pending = false
        WHERE id = ${connectionId} AND settings = ${JSON.stringify(settings)}::jsonb`.execute(db);
    },

    /** Connections that can read a company now, with their settings: those that were first come first. */
    async readers(companyId: string): Promise<{ id: string; settings: Record<string, unknown> }[]> {
      const { rows } = await sql<{ id: string; settings: Record<string, unknown> }>`
        SELECT c.id, c.settings FROM connections c JOIN access a ON a.connection_id = c.id
        WHERE a.company_id = ${companyId} AND a.lost_at IS NULL AND c.status = 'active'
        ORDER BY c.connected_at, c.id`.execute(db);
      return rows;
    },

    /**
     * A page of a company's assets that were never mirrored: those that are skipped, whoever is in charge of them, and those
     * that the connection has still to mirror, or failed to. What a worker has in hand is left to it.
     */
    async page(of: {
      connectionId: string;
      companyId: string;
      after: string;
      limit: number;
    }): Promise<SelectableRow[]> {
      const { rows } = await sql<SelectableRow>`
        SELECT id, connection_id, company_id, project_id, asset_type, skipped FROM assets
        WHERE company_id = ${of.companyId} AND id > ${of.after} AND media IS NULL AND (
          skipped IS NOT NULL OR (connection_id = ${of.connectionId} AND (next_at IS NOT NULL OR state = 'failed')
            AND listed <> '{}' AND (lease_until IS NULL OR lease_until < now())))
        ORDER BY id LIMIT ${of.limit}`.execute(db);
      return rows;
    },

    /** These are skipped from now on, and nothing more is done for them. Returns how many. */
    async skip(assets: { id: string; rule: string; reason: string }[]): Promise<number> {
      if (assets.length === 0) return 0;
      const { rows } = await sql<{ count: number }>`
        WITH out AS (
          SELECT a.id, r.rule, r.reason FROM assets a
          JOIN jsonb_to_recordset(${JSON.stringify(assets)}::jsonb) AS r (id text, rule text, reason text) ON r.id = a.id
          WHERE a.media IS NULL AND (a.lease_until IS NULL OR a.lease_until < now())
          ORDER BY a.id FOR UPDATE OF a
        ), changed AS (
          UPDATE assets SET state = 'pending', skipped = out.rule, reason = out.reason, next_at = NULL, queued_at = NULL,
            lease = lease + 1, lease_until = NULL, attempts = 0, waits = 0, processing_since = NULL, upload = NULL
          FROM out WHERE assets.id = out.id RETURNING assets.id
        ), parts AS (
          DELETE FROM upload_parts USING changed WHERE asset_id = changed.id
        ), told AS (
          INSERT INTO asset_history (asset_id, kind, data)
          SELECT changed.id, 'skipped', jsonb_build_object('rule', out.rule) FROM changed JOIN out ON out.id = changed.id
        )
        SELECT count(*) AS count FROM changed`.execute(db);
      return rows[0]!.count;
    },

    /** These are to be mirrored by the connection, at once. Returns how many. */
    async letIn(connectionId: string, ids: string[]): Promise<number> {
      if (ids.length === 0) return 0;
      const { numAffectedRows } = await sql`
        WITH let AS (
          SELECT id FROM assets WHERE id = ANY(${ids}::text[]) AND skipped IS NOT NULL ORDER BY id FOR UPDATE
        ), changed AS (
          UPDATE assets SET connection_id = ${connectionId}, skipped = NULL, reason = NULL, next_at = now()
          FROM let WHERE assets.id = let.id RETURNING assets.id)
        INSERT INTO asset_history (asset_id, kind) SELECT id, 'unskipped' FROM changed`.execute(db);
      return Number(numAffectedRows ?? 0n);
    },

    /** These are another connection's to mirror from now on. */
    async handOver(connectionId: string, ids: string[]): Promise<void> {
      if (ids.length === 0) return;
      await sql`
        WITH over AS (
          SELECT id FROM assets WHERE id = ANY(${ids}::text[]) AND (lease_until IS NULL OR lease_until < now())
          ORDER BY id FOR UPDATE)
        UPDATE assets SET connection_id = ${connectionId}, queued_at = NULL, lease = lease + 1, lease_until = NULL,
          state = CASE WHEN state IN ('transferring', 'failed') THEN 'pending' ELSE state END,
          skipped = NULL, next_at = coalesce(next_at, now())
        FROM over WHERE assets.id = over.id`.execute(db);
    },
  };
}
