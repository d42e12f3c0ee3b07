import { KEYS, keyOf, type TableName, type Tables } from './tables.ts';

/** The changes that belong together: new rows by table and key. Null deletes the row. */
export type Batch = Map<TableName, Map<string, Tables[TableName] | null>>;

/** Where a store saves its changes. */
export type Persistence = {
  load<Table extends TableName>(table: Table): Promise<Tables[Table][]>;
  /** Saves the whole batch, or nothing. */
  save(batch: Batch): Promise<void>;
  close(): Promise<void>;
};

/**
 * The data that survives a restart. All of it is in memory. A change is saved first, then made in memory, then answered:
 * an answered change is never lost, and a failed one has no effect.
 */
export class Store {
  readonly #tables = new Map<TableName, Map<string, Tables[TableName]>>();
  readonly #persistence: Persistence | undefined;
  #lastChange: Promise<unknown> = Promise.resolve();

  private constructor(persistence?: Persistence) {
    this.#persistence = persistence;
  }

  /** Without persistence, all data is lost when the process ends. */
  static async open(persistence?: Persistence): Promise<Store> {
    const store = new Store(persistence);
    for (const table of Object.keys(KEYS) as TableName[]) {
      const rows = (await persistence?.load(table)) ?? [];
      store.#tables.set(table, new Map(rows.map((row) => [keyOf(table, row as never), row])));
    }
    return store;
  }

  /** The rows of a table in the order in which they were added. */
  rows<Table extends TableName>(table: Table): ReadonlyMap<string, Tables[Table]> {
    return this.#tables.get(table) as Map<string, never>;
  }

  /** Makes changes one after the other: the rows that `decide` reads do not change until its own change is made. */
  change<T>(decide: (changes: Changes) => T): Promise<T> {
    const change = this.#lastChange.then(() => this.#change(decide));
    this.#lastChange = change.catch(() => {});
    return change;
  }

  async #change<T>(decide: (changes: Changes) => T): Promise<T> {
    const changes = new Changes();
    const result = decide(changes);
    if (changes.batch.size === 0) return result;
    await this.#persistence?.save(changes.batch);
    for (const [table, rows] of changes.batch) {
      const stored = this.#tables.get(table)!;
      for (const [key, row] of rows) {
        if (row) stored.set(key, row);
        else stored.delete(key);
      }
    }
    return result;
  }

  /** A setting that is created once. */
  async setting(name: string, create: () => string): Promise<string> {
    const known = this.rows('settings').get(name)?.value;
    if (known !== undefined) return known;
    const value = create();
    await this.change((changes) => changes.put('settings', { name, value }));
    return value;
  }

  async close(): Promise<void> {
    await this.#lastChange;
    await this.#persistence?.close();
  }
}

/** Collects what one change puts and deletes. Rows are replaced, never modified. */
export class Changes {
  readonly batch: Batch = new Map();

  put<Table extends TableName>(table: Table, ...rows: Tables[Table][]): void {
    for (const row of rows) this.#rows(table).set(keyOf(table, row as never), row);
  }

  delete(table: TableName, ...keys: string[]): void {
    for (const key of keys) this.#rows(table).set(key, null);
  }

  #rows(table: TableName): Map<string, Tables[TableName] | null> {
    const rows = this.batch.get(table) ?? new Map();
    this.batch.set(table, rows);
    return rows;
  }
}
