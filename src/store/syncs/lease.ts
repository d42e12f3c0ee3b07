import { sql } from 'kysely';
import { LeaseLost } from '../../floor/errors.ts';
import { jsonb } from '../database/jsonb.ts';
import { wroteAny } from '../database/results.ts';
import type { CompanyPosition, Database, Sync } from '../database/schema.ts';
import { inMs } from '../database/time.ts';

/** The lease of a connection's syncs, which `owner` takes and extends for `leaseMs`. */
export interface SyncLease {
  connectionId: string;
  owner: string;
  leaseMs: number;
}

/** Extends the lease. False: another process has taken it over. */
export async function extendLease(db: Database, lease: SyncLease): Promise<boolean> {
  return wroteAny(await extending(lease).execute(db));
}

/** The position of one company, to be merged into those of its sync. */
export const positionOf = (companyId: string, position: CompanyPosition) =>
  sql`jsonb_build_object(${companyId}::text, ${jsonb(position)})`;

/** A company in a leased sync. */
export interface CompanyRun {
  sync: Sync;
  lease: SyncLease;
  companyId: string;
}

/** Does something in a transaction that extends the lease first. @throws LeaseLost */
export async function underLease<T>(db: Database, company: CompanyRun, work: (tx: Database) => Promise<T>): Promise<T> {
  return db.transaction().execute(async (tx) => {
    if (!(await extendLease(tx, company.lease))) throw leaseLost(company.lease);
    return work(tx);
  });
}

export const leaseLost = ({ connectionId }: SyncLease) => new LeaseLost(`the sync of connection ${connectionId}`);

/** The statement that extends the lease. It changes a row only if the lease is still held. */
export const extending = ({ connectionId, owner, leaseMs }: SyncLease) => sql`
  UPDATE connections SET sync_until = ${inMs(leaseMs)}
  WHERE id = ${connectionId} AND sync_owner = ${owner} AND status = 'active'`;
