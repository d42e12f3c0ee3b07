import { hash } from 'node:crypto';
import pg from 'pg';

/** Ends a statement that is asked so often, and takes so long to plan, that it is planned once for each connection. */
const mark = /\/\* prepared: (\w+) \*\/$/;

/** By text: what its mark says, and a digest of it, so that a name never stands for another text. Undefined: not marked. */
const names = new Map<string, string | undefined>();
function nameOf(text: string): string | undefined {
  if (!text.endsWith('*/')) return undefined;
  if (!names.has(text)) {
    const name = mark.exec(text)?.[1];
    names.set(text, name && `${name} ${hash('sha256', text).slice(0, 12)}`);
  }
  return names.get(text);
}

/**
 * The table has another column since (a newer release has come), or the session has forgotten it, or is another that has it:
 * nothing was done.
 */
const outdated = new Set(['0A000', '26000', '42P05']);

/**
 * A client that prepares the statements that are marked for it, each by its own name. In front of a
 * pooler it does not: there the next statement may go to another session, which knows none of them.
 */
export class PreparingClient extends pg.Client {
  #direct = false;
  #edition = 0;

  /** Whether this is the server itself. Known once it was found out. */
  get isDirect(): boolean {
    return this.#direct;
  }

  /**
   * Finds out, once, after connecting, whether this is the server itself; from then on it prepares. A pooler gives its
   * clients keys of its own, which name no process of the server.
   */
  async findPooler(): Promise<boolean> {
    const { rows } = await super.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    this.#direct = rows[0]?.pid === (this as unknown as { processID: number | null }).processID;
    return this.#direct;
  }

  override query(...args: unknown[]): never {
    const [text, values] = args;
    const name = this.#direct && typeof text === 'string' && Array.isArray(values) ? nameOf(text) : undefined;
    const query = (...them: unknown[]) => (super.query as (...args: unknown[]) => unknown).apply(this, them);
    if (name === undefined) return query(...args) as never;
    const prepared = () => query({ name: `${name} ${this.#edition}`, text, values }) as Promise<unknown>;
    return prepared().catch((error) => {
      if (!outdated.has(error.code)) throw error;
      this.#edition++;
      return prepared();
    }) as never;
  }
}
