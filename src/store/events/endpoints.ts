import { sql } from 'kysely';
import type { WebhookKind } from '../../floor/webhook-kinds.ts';
import { wroteAny } from '../database/results.ts';
import type { Database } from '../database/schema.ts';
import { msAgo } from '../database/time.ts';
import { addEvent } from './add-event.ts';

/** An endpoint gets only events that match each list. Undefined: all match. */
export interface EndpointFilters {
  connectionIds?: string[] | undefined;
  companyIds?: string[] | undefined;
  projectIds?: string[] | undefined;
  assetTypes?: string[] | undefined;
}

/** A receiver of webhooks. `sealed`: its address and secrets; null: they are in the environment. */
export interface Endpoint {
  id: string;
  /** The beginning of its address. */
  url: string;
  sealed: string | null;
  description: string | null;
  kinds: WebhookKind[];
  filters: EndpointFilters;
  enabled: boolean;
  /** When it answered 410. */
  goneAt: Date | null;
  createdAt: Date;
}

export type EndpointValues = Pick<Endpoint, 'url' | 'sealed' | 'description' | 'kinds' | 'filters' | 'enabled'>;

/** All endpoints. `waiting`: how many events wait for it; `failing`: for how many of them an attempt has failed. */
export async function list(db: Database) {
  const { rows } = await sql<Endpoint & { waiting: number; failing: number }>`
    SELECT w.*, d.* FROM webhook_endpoints w CROSS JOIN LATERAL (
      SELECT count(*) AS waiting, count(error) AS failing FROM webhook_deliveries
      WHERE endpoint_id = w.id AND state = 'waiting') AS d
    ORDER BY w.created_at, w.id`.execute(db);
  return rows;
}

export async function get(db: Database, id: string): Promise<Endpoint | undefined> {
  const { rows } = await sql<Endpoint>`SELECT * FROM webhook_endpoints WHERE id = ${id}`.execute(db);
  return rows[0];
}

/** Adds an endpoint, or replaces its values: then it is no longer gone. */
export async function save(db: Database, id: string, endpoint: EndpointValues): Promise<void> {
  const { url, sealed, description, kinds, filters, enabled } = endpoint;
  await sql`
    INSERT INTO webhook_endpoints (id, url, sealed, description, kinds, filters, enabled)
    VALUES (${id}, ${url}, ${sealed}, ${description}, ${kinds}, ${JSON.stringify(filters)}, ${enabled})
    ON CONFLICT (id) DO UPDATE SET url = excluded.url, sealed = excluded.sealed, description = excluded.description,
      kinds = excluded.kinds, filters = excluded.filters, enabled = excluded.enabled, gone_at = NULL`.execute(db);
}

/** Changes the values of an endpoint. False: it has changed since it was read, or was removed. */
export async function change(
  db: Database,
  before: Pick<Endpoint, 'id' | 'sealed'>,
  endpoint: EndpointValues & Pick<Endpoint, 'goneAt'>,
): Promise<boolean> {
  const { url, sealed, description, kinds, filters, enabled, goneAt } = endpoint;
  const result = await sql`
    UPDATE webhook_endpoints SET url = ${url}, sealed = ${sealed}, description = ${description}, kinds = ${kinds},
      filters = ${JSON.stringify(filters)}, enabled = ${enabled}, gone_at = ${goneAt}
    WHERE id = ${before.id} AND sealed = ${before.sealed}`.execute(db);
  return wroteAny(result);
}

/** Removes an endpoint with all that waits for it, and its log. */
export async function remove(db: Database, id: string): Promise<void> {
  await sql`DELETE FROM webhook_endpoints WHERE id = ${id}`.execute(db);
}

/** Records that a process has its address in the environment. False: there is no such endpoint. */
export async function markSeen(db: Database, id: string): Promise<boolean> {
  return wroteAny(await sql`UPDATE webhook_endpoints SET unseen_since = NULL WHERE id = ${id}`.execute(db));
}

/** Called by a process without its address. Removes the endpoint if, for `ms`, no process had the address. True: it is removed. */
export async function removeUnseen(db: Database, id: string, ms: number): Promise<boolean> {
  await sql`UPDATE webhook_endpoints SET unseen_since = now() WHERE id = ${id} AND unseen_since IS NULL`.execute(db);
  return wroteAny(
    await sql`DELETE FROM webhook_endpoints WHERE id = ${id} AND unseen_since < ${msAgo(ms)}`.execute(db),
  );
}

/**
 * Marks an endpoint that answered 410 at the address that `endpoint` has. True if it was not marked before; an event then
 * reports it. False if it was changed meanwhile.
 */
export async function markGone(
  db: Database,
  { id, url, sealed }: Pick<Endpoint, 'id' | 'url' | 'sealed'>,
  reason: string,
): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const result = await sql`
      UPDATE webhook_endpoints SET gone_at = now()
      WHERE id = ${id} AND url = ${url} AND sealed IS NOT DISTINCT FROM ${sealed} AND gone_at IS NULL`.execute(tx);
    if (wroteAny(result)) await addEvent(tx, { kind: 'webhook.gone', data: { endpointId: id, reason } });
    return wroteAny(result);
  });
}

/** Saves the same address and secrets, sealed with another key. False if they were replaced meanwhile. */
export async function reseal(db: Database, id: string, before: string, after: string): Promise<boolean> {
  return wroteAny(
    await sql`UPDATE webhook_endpoints SET sealed = ${after} WHERE id = ${id} AND sealed = ${before}`.execute(db),
  );
}
