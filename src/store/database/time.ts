import { sql } from 'kysely';

/** `ms` milliseconds from now, by the database's clock, which all processes share. */
export const inMs = (ms: number) => sql<Date>`now() + ${ms} * interval '1 ms'`;

/** `ms` milliseconds ago, by the same clock. */
export const msAgo = (ms: number) => sql<Date>`now() - ${ms} * interval '1 ms'`;

/** For positions in lists: a time in microseconds since the epoch. A Date has no microseconds. */
export const microsOf = (column: string) => sql<number>`(extract(epoch FROM ${sql.ref(column)}) * 1000000)::bigint`;
export const atMicros = (micros: number) => sql<Date>`('epoch'::timestamptz + ${micros} * interval '1 microsecond')`;
