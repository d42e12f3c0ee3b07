import { sql } from 'kysely';

/** Columns for an update of connections: requests that their filters are applied to all their assets again. */
export const requestFilters = { filtersRequested: sql<number>`connections.filters_requested + 1` };
