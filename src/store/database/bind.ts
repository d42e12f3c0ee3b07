import type { Database } from './schema.ts';

// biome-ignore lint/suspicious/noExplicitAny: stands for whatever an operation takes and returns
type Operation = (db: Database, ...rest: any[]) => any;

type Bound<F> = F extends (db: Database, ...rest: infer Rest) => infer Result ? (...rest: Rest) => Result : never;

/** Binds operations, functions whose first parameter is the database, to `db`. */
export function bind<Operations extends Record<string, Operation>>(db: Database, operations: Operations) {
  return Object.fromEntries(
    Object.entries(operations).map(([name, operation]) => [name, operation.bind(undefined, db)]),
  ) as { [Name in keyof Operations]: Bound<Operations[Name]> };
}
