import { sql } from 'kysely';

/** `ms` milliseconds from now, by the database's clock, which all processes share. */
export const inMs = (ms: number) => sql<Date>`now() + ${ms} * interval '1 ms'`;

/** `ms` milliseconds ago, by the same clock. */
export const msAgo = (ms: number) => sql<Date>`now() - ${ms} * interval '1 ms'`;
