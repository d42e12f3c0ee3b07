import { sql } from 'kysely';

/** For an update of connections: their filters are applied to all their assets again. */
export const requestFilters = { filtersRequested: sql<number>`connections.filters_requested + 1` };
