import { isDeepStrictEqual } from 'node:util';
import type { z } from 'zod';
import type { World } from './world.ts';

/** One sentence of the specification, and the test of it. */
export type Check = { id: string; section: string; says: string; run: (world: World) => Promise<void> };

export function check(section: string, id: string, says: string, run: Check['run']): Check {
  return { id, section, says, run };
}

/** The service does not do what the sentence says. */
export class Failure extends Error {
  readonly expected: string;
  readonly found: string;

  constructor(expected: string, found: unknown) {
    super(`expected ${expected}`);
    this.expected = expected;
    this.found = typeof found === 'string' ? found : JSON.stringify(found);
  }
}

/** The check needs something that this run does not have. */
export class NotTried extends Error {}

export function same(what: string, found: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(found, expected)) throw new Failure(`${what}: ${short(expected)}`, short(found));
}

/** Shortens long lists to their beginning and their length. */
function short(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  const count = Array.isArray(value) ? ` (${value.length})` : '';
  return text.length > 400 ? `${text.slice(0, 400)}…${count}` : text;
}

export function that(expected: string, isSo: boolean, found: unknown): asserts isSo {
  if (!isSo) throw new Failure(expected, found ?? 'nothing');
}

export function shaped<T extends z.ZodType>(what: string, schema: T, value: unknown): z.output<T> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const { path, message: said } = parsed.error.issues[0]!;
  const message = said.replace(/^Invalid \w+: /, '');
  const at = path.reduce<unknown>((inner, key) => (inner as Record<PropertyKey, unknown> | undefined)?.[key], value);
  throw new Failure(`${what}${path.length > 0 ? `, ${path.join('.')}` : ''}: ${message}`, at ?? 'nothing');
}
