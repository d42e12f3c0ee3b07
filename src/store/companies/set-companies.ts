import { sql } from 'kysely';
import { LeaseLost } from '../../floor/errors.ts';
import type { Database } from '../database/schema.ts';
import { addEvent } from '../events/add-event.ts';
import { leaveWork, retryFailedAssets } from './adopt-assets.ts';
import { type CompanyAccess, companyAccess, type ReadableCompany } from './readable-companies.ts';
import { requestFilters } from './request-filters.ts';

interface Changes {
  gained: string[];
  lost: string[];
}
const none: Changes = { gained: [], lost: [] };

/**
 * Records the companies that `/me` names. Those missing from a complete answer are lost; their records and high-water marks
 * stay. With `owner`, nothing changes unless it holds the connection's sync lease. If nothing is new this costs one read, or
 * none with `before`, which was read together with that lease. `isNew`: of a new connection, which has an event already.
 * @throws LeaseLost
 */
export async function setCompanies(
  db: Database,
  id: string,
  companies: { id: string; name: string }[],
  options: { complete: boolean; owner?: string; before?: CompanyAccess | undefined; isNew?: boolean },
): Promise<Changes & { readable: ReadableCompany[] }> {
  const names = new Map(companies.map((company) => [company.id, company.name]));
  let { before } = options;
  if (!before) {
    const read = await companyAccess(db, id);
    requireLease(id, options.owner, read?.syncOwner);
    before = read;
  }
  if (!before || before.status === 'disconnected') return { ...none, readable: [] };
  const { readable } = before;
  const isSame =
    readable.filter((company) => names.get(company.id) === company.name).length === names.size &&
    (readable.length === names.size || !options.complete);
  if (isSame) return { ...none, readable };
  const changes = await db.transaction().execute((tx) => change(tx, id, names, options));
  return { ...changes, readable: (await companyAccess(db, id))?.readable ?? [] };
}

async function change(
  tx: Database,
  id: string,
  names: Map<string, string>,
  options: { complete: boolean; owner?: string; isNew?: boolean },
): Promise<Changes> {
  const connection = await tx
    .selectFrom('connections')
    .select(['status', 'syncOwner'])
    .where('id', '=', id)
    .forNoKeyUpdate()
    .executeTakeFirst();
  requireLease(id, options.owner, connection?.syncOwner);
  if (!connection || connection.status === 'disconnected') return none;
  const ids = [...names.keys()].sort();
  await sql`
    INSERT INTO companies (id, name)
    SELECT * FROM unnest(${ids}::text[], ${ids.map((id) => names.get(id))}::text[])
    ON CONFLICT (id) DO UPDATE SET name = excluded.name WHERE companies.name IS DISTINCT FROM excluded.name`.execute(
    tx,
  );
  const lostBefore = await lostCompanies(tx, id);
  const gained = await gain(tx, id, ids);
  const lost = options.complete ? await lose(tx, id, ids) : [];
  if (connection.status === 'active') {
    const regained = gained.filter((companyId) => lostBefore.has(companyId));
    await retryFailedAssets(tx, id, regained);
    // As for a connection that is resumed (connections/status.ts).
    if (regained.length > 0) await tx.updateTable('connections').set(requestFilters).where('id', '=', id).execute();
  }
  const lostIds = lost.map(({ companyId }) => companyId);
  if (lost.length > 0) await leaveWork(tx, id, lostIds);
  for (const companyId of options.isNew ? [] : gained) {
    const lostAt = lostBefore.get(companyId)?.toISOString();
    const data = { companyId, companyName: names.get(companyId), ...(lostAt && { lostAt }) };
    await addEvent(tx, { kind: 'company.gained', connectionId: id, data });
  }
  for (const data of lost) await addEvent(tx, { kind: 'company.lost', connectionId: id, data: { ...data } });
  return { gained, lost: lostIds };
}

function requireLease(id: string, owner: string | undefined, holder: string | null | undefined): void {
  if (owner !== undefined && holder !== owner) {
    throw new LeaseLost(`the sync of connection ${id}`);
  }
}

/** Companies that the connection could read once, and since when it cannot. */
async function lostCompanies(tx: Database, id: string): Promise<Map<string, Date>> {
  const { rows } = await sql<{ companyId: string; lostAt: Date }>`
    SELECT company_id, lost_at FROM access WHERE connection_id = ${id} AND lost_at IS NOT NULL`.execute(tx);
  return new Map(rows.map(({ companyId, lostAt }) => [companyId, lostAt]));
}

async function gain(tx: Database, id: string, companyIds: string[]): Promise<string[]> {
  const { rows } = await sql<{ companyId: string }>`
    INSERT INTO access (connection_id, company_id) SELECT ${id}, unnest(${companyIds}::text[])
    ON CONFLICT (connection_id, company_id) DO UPDATE SET lost_at = NULL
      WHERE access.lost_at IS NOT NULL
    RETURNING company_id`.execute(tx);
  return rows.map(({ companyId }) => companyId);
}

/** Removes the access to all companies but these. */
async function lose(tx: Database, id: string, except: string[]) {
  const { rows } = await sql<{ companyId: string; companyName: string }>`
    UPDATE access SET lost_at = now() FROM companies
    WHERE connection_id = ${id} AND lost_at IS NULL AND company_id <> ALL(${except}::text[]) AND companies.id = company_id
    RETURNING company_id, companies.name AS company_name`.execute(tx);
  return rows;
}
