import { randomUUID } from 'node:crypto';
import { fieldsHere, type Log } from '../log.ts';
import type { Metrics } from './metrics.ts';

/** Called when a request to the library is sent. Returns what counts and logs its answer, with the caller's log fields. */
export function recordRequest(metrics: Metrics, log: Log) {
  const work = fieldsHere();
  const libraryRequestId = randomUUID();
  return ({ endpoint, status, ms }: { endpoint: string; status: number | string; ms: number }): void => {
    metrics.libraryRequests.inc({ endpoint, status });
    log.debug({ event: 'library.answered', ...work, libraryRequestId, endpoint, status, ms }, 'library answered');
  };
}
