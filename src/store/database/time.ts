import { sql } from 'kysely';

/** So many milliseconds from now, by the database's clock, which all processes share. */
export const inMs = (ms: number) => sql<Date>`now() + ${ms} * interval '1 ms'`;

/** So many milliseconds ago, by the same clock. */
export const msAgo = (ms: number) => sql<Date>`now() - ${ms} * interval '1 ms'`;
