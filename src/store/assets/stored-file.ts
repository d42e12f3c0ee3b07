import { sql } from 'kysely';

/** `media` of a file that is being replaced or removed, or is damaged: its version is empty, which no file of the library has. */
export const invalidMedia = sql`media || '{"version": ""}'`;

/** The bucket has a complete file of the asset in this row that is not known to be damaged. */
export const hasValidFile = (row: 'a' | 'assets') =>
  sql<boolean>`(${sql.ref(`${row}.mirrored_at`)} IS NOT NULL AND ${sql.ref(`${row}.media`)}->>'version' <> '')`;
