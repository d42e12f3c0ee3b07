import { sql } from 'kysely';
import type { Database } from './schema.ts';

/** A run whose lease another process has taken over must not write anything more. */
export class TurnLost extends Error {
  override readonly name = 'TurnLost';
}

export const turnLost = (connectionId: string) =>
  new TurnLost(`another process has taken over the sync of connection ${connectionId}`);

/** Keeps the lease of a connection's sync. 0: another has it. */
export async function holdLease(db: Database, connectionId: string, owner: string, leaseMs: number): Promise<bigint> {
  return (await leaseHeld(connectionId, owner, leaseMs).execute(db)).numAffectedRows ?? 0n;
}

/** The statement that does. */
export const leaseHeld = (connectionId: string, owner: string, leaseMs: number) => sql`
  UPDATE connections SET sync_until = now() + ${leaseMs} * interval '1 ms'
  WHERE id = ${connectionId} AND sync_owner = ${owner} AND status = 'active'`;
