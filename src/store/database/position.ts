import { sql } from 'kysely';

/** A position in the order of events or changes: a transaction, and the id of a row that it has added. */
export interface Position {
  xact: string;
  id: number;
}

export const isAfter = ({ xact, id }: Position) => sql<boolean>`(xact, id) > (${xact}::xid8, ${id}::bigint)`;

/** The first transaction that may still add rows. */
export const firstOpen = sql<string>`pg_snapshot_xmin(pg_current_snapshot())`;

/** Nothing is ever added before such a row, or between two of them: all transactions up to its own have ended. */
export const isFinal = sql<boolean>`xact < ${firstOpen}`;
