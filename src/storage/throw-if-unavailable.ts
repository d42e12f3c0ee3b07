import { RetryLater, StorageUnavailable } from '../errors.ts';
import type { Storage } from './storage.ts';

/** After an error of one object: throws if the whole store cannot be used. If only this object is refused, others can go on. */
export async function throwIfUnavailable(storage: Storage, error: unknown): Promise<void> {
  if (error instanceof StorageUnavailable || error instanceof RetryLater) await storage.check();
}
