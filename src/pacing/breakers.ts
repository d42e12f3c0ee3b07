import type { Log } from '../floor/log.ts';
import type { Timings } from '../floor/timings.ts';
import type { LibraryClient } from '../source/client.ts';
import type { Storage } from '../storage/storage.ts';
import { type CircuitBreaker, createCircuitBreaker } from './circuit-breaker.ts';

/** `onChange`: called when a breaker has opened or closed. */
type Deps<Needs> = Needs & { log: Log; timings: Timings; onChange: () => void };

/** The circuit breaker of the bucket. While it is open, no asset is started, and all of them wait instead of failing. */
export const createBucketBreaker = ({ storage, log, timings, onChange }: Deps<{ storage: Storage }>): CircuitBreaker =>
  createCircuitBreaker({
    timings,
    check: () => storage.check(),
    onOpen(err) {
      log.error({ event: 'bucket.failed', storage: storage.name, err }, 'bucket unavailable, all assets wait');
      onChange();
    },
    onClose() {
      log.info({ event: 'bucket.recovered', storage: storage.name }, 'bucket available again');
      onChange();
    },
  });

/** The circuit breaker of this process's connection to the library's API. Other processes may reach it. */
export const createLibraryBreaker = ({
  client,
  log,
  timings,
  onChange,
}: Deps<{ client: LibraryClient }>): CircuitBreaker =>
  createCircuitBreaker({
    timings,
    check: () => client.reach(),
    onOpen(err) {
      log.error({ event: 'library.unreachable', err }, 'no connection to the library, this process takes no jobs');
      onChange();
    },
    onClose() {
      log.info({ event: 'library.reached' }, 'library reachable again');
      onChange();
    },
  });
