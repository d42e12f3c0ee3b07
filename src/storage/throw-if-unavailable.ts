import { RetryLater, StorageUnavailable } from '../floor/errors.ts';
import type { Storage } from './storage.ts';

const mayBeAll = (error: unknown) => error instanceof StorageUnavailable || error instanceof RetryLater;

/** Call it after an error of one object. Throws if the whole store cannot be used, and returns if only this object is refused. */
export async function throwIfUnavailable(storage: Storage, error: unknown): Promise<void> {
  if (mayBeAll(error)) await storage.check();
}

/** Reads one object, and once more after an outage that is over. @throws StorageUnavailable only if the whole store cannot be used */
export async function readOne<T>(storage: Storage, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!mayBeAll(error)) throw error;
    await storage.check();
  }
  try {
    return await read();
  } catch (error) {
    await throwIfUnavailable(storage, error);
    throw error instanceof StorageUnavailable ? new Error(error.message, { cause: error }) : error;
  }
}
