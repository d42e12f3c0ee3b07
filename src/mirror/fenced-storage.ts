import type { LeasedAsset } from '../queue/leases.ts';
import type { Storage } from '../storage/storage.ts';
import { span } from '../tracing/tracing.ts';

/**
 * The bucket as a lease holder may use it: after the lease is lost, `put`, `keep` and `remove` throw. `uploads` has no fence: see
 * `transferInParts`. `put` and `keep` are traced.
 */
export function fenced(storage: Storage, { fence }: Pick<LeasedAsset, 'fence'>): Storage {
  return {
    ...storage,
    put: (key, body, options = {}) => span('put', { key }, () => storage.put(key, body, { ...options, fence })),
    async keep(key, as, options) {
      await fence();
      return span('keep', { key }, () => storage.keep(key, as, options));
    },
    async remove(key, options) {
      await fence();
      await storage.remove(key, options);
    },
  };
}
