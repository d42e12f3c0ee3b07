import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';
import { addEvent } from '../events/add-event.ts';
import { LeaseLost } from '../syncs/lease.ts';
import { adoptWork, leaveWork, tryAgain } from './hand-over.ts';
import { adoptableBy, type ReadableCompany, type Standing, standing } from './readable-companies.ts';

/**
 * Takes over what `/me` says. Companies that are missing from a complete answer are lost: their records and marks stay.
 * Assets that nobody able to read them is in charge of become this connection's. With `owner`, nothing is
 * changed unless that one holds the lease of the connection's sync: an answer from before says nothing any more. Where all
 * is as before, that is one read; none, where it was read with the lease (`before`). Returns also what can be read now, as `companies` does.
 * @throws LeaseLost
 */
export async function setCompanies(
  db: Database,
  id: string,
  companies: { id: string; name: string }[],
  options: { complete: boolean; owner?: string; before?: Standing | undefined },
): Promise<{ gained: string[]; lost: string[]; readable: ReadableCompany[] }> {
  const named = new Map(companies.map(({ id, name }) => [id, { id, name }]));
  const ids = [...named.keys()].sort();
  const ours = (owner: string | null | undefined) => {
    if (options.owner !== undefined && owner !== options.owner) {
      throw new LeaseLost(`another process has taken over the sync of connection ${id}`);
    }
  };
  const read = options.before ? undefined : await standing(db, id);
  if (!options.before) ours(read?.syncOwner);
  const before = options.before ?? read;
  if (!before || before.status === 'disconnected') return { gained: [], lost: [], readable: [] };
  const { readable } = before;
  const same =
    readable.filter((company) => named.get(company.id)?.name === company.name).length === named.size &&
    (readable.length === named.size || !options.complete);
  if (same && !(before.shared && (await adoptableBy(db, id)))) return { gained: [], lost: [], readable };
  const changed = await db.transaction().execute(async (tx) => {
    const connection = await tx
      .selectFrom('connections')
      .select(['status', 'syncOwner'])
      .where('id', '=', id)
      .forNoKeyUpdate()
      .executeTakeFirst();
    ours(connection?.syncOwner);
    if (!connection || connection.status === 'disconnected') return { gained: [], lost: [] };
    if (ids.length > 0) {
      await tx
        .insertInto('companies')
        .values(ids.map((companyId) => named.get(companyId)!))
        .onConflict((conflict) =>
          conflict
            .column('id')
            .doUpdateSet({ name: sql`excluded.name` })
            .where(sql<boolean>`companies.name IS DISTINCT FROM excluded.name`),
        )
        .execute();
    }
    const back = await tx
      .selectFrom('access')
      .select(['companyId', 'lostAt'])
      .where('connectionId', '=', id)
      .where('lostAt', 'is not', null)
      .execute();
    const gained = ids.length
      ? (
          await sql<{ companyId: string }>`
            INSERT INTO access (connection_id, company_id)
            SELECT ${id}, unnest(${ids}::text[])
            ON CONFLICT (connection_id, company_id) DO UPDATE SET lost_at = NULL, gained_at = now()
              WHERE access.lost_at IS NOT NULL
            RETURNING company_id`.execute(tx)
        ).rows
      : [];
    const lost = options.complete
      ? await tx
          .updateTable('access')
          .set({ lostAt: sql`now()` })
          .where('connectionId', '=', id)
          .where('lostAt', 'is', null)
          .$if(ids.length > 0, (query) => query.where('companyId', 'not in', ids))
          .returning('companyId')
          .execute()
      : [];
    if (connection.status === 'active') {
      await adoptWork(tx, id);
      await tryAgain(
        tx,
        id,
        back.map((row) => row.companyId).filter((companyId) => gained.some((row) => row.companyId === companyId)),
      );
    }
    if (lost.length > 0) {
      await leaveWork(
        tx,
        id,
        lost.map((row) => row.companyId),
      );
    }
    for (const { companyId } of gained) {
      const lostAt = back.find((row) => row.companyId === companyId)?.lostAt?.toISOString();
      await addEvent(tx, {
        kind: 'company.gained',
        connectionId: id,
        data: { companyId, ...(lostAt && { lostAt }) },
      });
    }
    for (const { companyId } of lost) {
      await addEvent(tx, { kind: 'company.lost', connectionId: id, data: { companyId } });
    }
    return { gained: gained.map((row) => row.companyId), lost: lost.map((row) => row.companyId) };
  });
  return { ...changed, readable: (await standing(db, id))?.readable ?? [] };
}
