import { sql } from 'kysely';
import { jsonb } from './jsonb.ts';

const snakeCase = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Rows as a set of records, with their keys in snake_case. Must be followed by `AS name (column type, …)`. */
export const recordset = (rows: object[]) => {
  const records = rows.map((row) =>
    Object.fromEntries(Object.entries(row).map(([key, value]) => [snakeCase(key), value])),
  );
  return sql`jsonb_to_recordset(${jsonb(records)})`;
};
