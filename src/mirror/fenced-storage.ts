import type { HeldAsset } from '../queue/leases.ts';
import type { Storage } from '../storage/storage.ts';
import { span } from '../tracing/tracing.ts';

/** The bucket for who holds an asset: whoever has lost it without knowing puts nothing in its place, and removes nothing. */
export function fenced(storage: Storage, { fence }: Pick<HeldAsset, 'fence'>): Storage {
  return {
    ...storage,
    put: (key, body, options = {}) => span('put', { key }, () => storage.put(key, body, { ...options, fence })),
    async remove(key) {
      await fence();
      await storage.remove(key);
    },
  };
}
