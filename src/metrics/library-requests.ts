import { randomUUID } from 'node:crypto';
import { fieldsHere, type Log } from '../floor/log.ts';
import type { Metrics } from './metrics.ts';

/** For when a request to the library is sent. Returns a function that counts and logs the answer, with the caller's log fields. */
export function recordRequest(metrics: Metrics, log: Log) {
  const callerFields = fieldsHere();
  const libraryRequestId = randomUUID();
  return ({ endpoint, status, ms }: { endpoint: string; status: number | string; ms: number }): void => {
    metrics.libraryRequests.inc({ endpoint, status });
    log.debug(
      { event: 'library.answered', ...callerFields, libraryRequestId, endpoint, status, ms },
      'library answered',
    );
  };
}
