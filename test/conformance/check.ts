import { isDeepStrictEqual } from 'node:util';
import type { z } from 'zod';
import type { World } from './world.ts';

/** One sentence of the specification, and how to find out whether it is true of a service. */
export type Check = { id: string; section: string; says: string; run: (world: World) => Promise<void> };

export function check(section: string, id: string, says: string, run: Check['run']): Check {
  return { id, section, says, run };
}

/** The sentence is not true of the service. */
export class Failure extends Error {
  readonly expected: string;
  readonly found: string;

  constructor(expected: string, found: unknown) {
    super(`expected ${expected}`);
    this.expected = expected;
    this.found = typeof found === 'string' ? found : JSON.stringify(found);
  }
}

/** Nobody knows: it takes something this run does not have. */
export class NotTried extends Error {}

export function same(what: string, found: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(found, expected))
    throw new Failure(`${what}: ${JSON.stringify(expected)}`, found ?? 'nothing');
}

export function that(expected: string, isSo: boolean, found: unknown): asserts isSo {
  if (!isSo) throw new Failure(expected, found ?? 'nothing');
}

export function shaped<T extends z.ZodType>(what: string, schema: T, value: unknown): z.output<T> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const { path, message } = parsed.error.issues[0]!;
  const at = path.reduce<unknown>((inner, key) => (inner as Record<PropertyKey, unknown> | undefined)?.[key], value);
  throw new Failure(`${what}${path.length > 0 ? `, ${path.join('.')}` : ''}: ${message}`, at ?? 'nothing');
}
