import { sql } from 'kysely';

/** Columns for an update of connections: the dispatcher requests a full sync, which applies the filters to all assets. */
export const fullSyncDue = { scheduledFullAt: sql<Date>`'epoch'` };
