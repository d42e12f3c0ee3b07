import { KEYS, keyOf, TABLES, type TableName, type Tables } from './tables.ts';

/**
 * What a restart must not forget. All of it is in memory, where it is read; a change is in the database, whole, before
 * it is in memory, and in both before it is answered. So what was answered outlives the process, and a change that
 * failed has not happened.
 */
export type Store = {
  rows<Table extends TableName>(table: Table): ReadonlyMap<string, Tables[Table]>;
  /** Changes are made one after the other: what `decide` reads is so until its own change is made. */
  change<T>(decide: (changes: Changes) => T): Promise<T>;
  close(): Promise<void>;
};

/** What a change puts and deletes. Rows are replaced, never changed in place. */
export type Changes = {
  put<Table extends TableName>(table: Table, ...rows: Tables[Table][]): void;
  delete<Table extends TableName>(table: Table, ...keys: string[]): void;
};

type Row = Tables[TableName];

/** The rows to be, and null for those that go, by table and key. */
export type Batch = Map<TableName, Map<string, Row | null>>;

/** Where changes are kept; without it, in memory alone. */
export type Keeper = {
  load<Table extends TableName>(table: Table): Promise<Tables[Table][]>;
  /** All of it or nothing. */
  keep(batch: Batch): Promise<void>;
  close(): Promise<void>;
};

export async function openStore(keeper?: Keeper): Promise<Store> {
  const memory = new Map<TableName, Map<string, Row>>();
  for (const table of TABLES) {
    const rows = (await keeper?.load(table)) ?? [];
    memory.set(table, new Map(rows.map((row) => [keyOf(table, row), row])));
  }
  let last: Promise<unknown> = Promise.resolve();

  async function make<T>(decide: (changes: Changes) => T): Promise<T> {
    const batch: Batch = new Map();
    const result = decide(changesOf(batch));
    if (batch.size === 0) return result;
    await keeper?.keep(batch);
    for (const [table, rows] of batch) {
      const kept = memory.get(table)!;
      for (const [key, row] of rows) {
        if (row) kept.set(key, row);
        else kept.delete(key);
      }
    }
    return result;
  }

  return {
    rows: <Table extends TableName>(table: Table) => memory.get(table) as Map<string, never>,
    change(decide) {
      const change = last.then(() => make(decide));
      last = change.catch(() => {});
      return change;
    },
    async close() {
      await last;
      await keeper?.close();
    },
  };
}

function changesOf(batch: Batch): Changes {
  const rowsOf = (table: TableName) => {
    const rows = batch.get(table) ?? new Map<string, Row | null>();
    batch.set(table, rows);
    return rows;
  };
  return {
    put(table, ...rows) {
      for (const row of rows) rowsOf(table).set(keyOf(table, row), row);
    },
    delete(table, ...keys) {
      for (const key of keys) rowsOf(table).set(key, null);
    },
  };
}

/** A setting that is made once. */
export async function settingOf(store: Store, name: string, make: () => string): Promise<string> {
  const known = store.rows('settings').get(name)?.value;
  if (known !== undefined) return known;
  const value = make();
  await store.change((changes) => changes.put('settings', { name, value }));
  return value;
}

/** The values of a key, in the order of the key's columns. */
export function valuesOf(table: TableName, key: string): [string, string][] {
  const values = key.split('\0');
  return KEYS[table].map((column, i) => [column, values[i]!]);
}
