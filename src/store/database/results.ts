import type { QueryResult } from 'kysely';

/** How many rows a statement wrote. */
export const rowsWritten = ({ numAffectedRows }: QueryResult<unknown>): number => Number(numAffectedRows ?? 0n);

/** Whether a statement wrote any row. */
export const wroteAny = (result: QueryResult<unknown>): boolean => rowsWritten(result) > 0;
