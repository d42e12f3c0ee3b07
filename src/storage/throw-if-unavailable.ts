import { RetryLater, StorageUnavailable } from '../floor/errors.ts';
import type { Storage } from './storage.ts';

/** Call it after an error of one object. Throws if the whole store cannot be used, and returns if only this object is refused. */
export async function throwIfUnavailable(storage: Storage, error: unknown): Promise<void> {
  if (error instanceof StorageUnavailable || error instanceof RetryLater) await storage.check();
}
