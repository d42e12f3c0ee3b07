import { type RawBuilder, sql } from 'kysely';

/** A value as jsonb; null stays NULL. */
export const jsonb = <T>(value: T): RawBuilder<T> => sql<T>`${value === null ? null : JSON.stringify(value)}::jsonb`;
