import type { Storage } from '../../../src/storage/storage.ts';
import { collected } from '../bodies.ts';

/** An empty store, and what only its owner can see and do. */
export interface Ground {
  /** Empty at first. */
  storage: Storage;
  /** Unfinished and abandoned drafts and uploads in parts. */
  leftovers(): Promise<string[]>;
  clear(): Promise<void>;
}

/** The error of a body that breaks. */
export class Broken extends Error {
  override readonly name = 'Broken';
  // The marks of the store's own errors: a similar error of the body must not pass for one.
  readonly code: string;

  constructor(code = 'EIO') {
    super('the line broke');
    this.code = code;
  }
}

/** The bytes of an object. */
export async function readFrom(storage: Storage, key: string): Promise<Buffer | undefined> {
  const stream = await storage.get(key);
  return stream && collected(stream);
}

/** The keys that begin with a prefix, as the store lists them. */
export async function keysIn(storage: Storage, prefix: string): Promise<string[]> {
  return (await Array.fromAsync(storage.list(prefix))).map((object) => object.key);
}
