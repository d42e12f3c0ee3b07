import { setTimeout as sleep } from 'node:timers/promises';
import { createPostgresBackend } from 'bullmq';

/** How long a worker waits after it could not get a job. */
const pauseMs = 1000;

interface Readiness {
  waitUntilReady(): Promise<void>;
  readyPromise?: Promise<void> | undefined;
}

/**
 * BullMQ's backend on PostgreSQL, without two faults of version 6.7.0. Both can be reported as they stand here.
 *
 * 1. A failed first connection is remembered. `PostgresConnection` and `PostgresQueueBackend` keep the promise of
 *    `waitUntilReady` when it rejects. To reproduce: create a worker while the server refuses connections, then start the
 *    server. Each call rejects with the first error for ever. The fix of https://github.com/taskforcesh/bullmq/issues/4729
 *    corrects the same mistake in `getListenClient`.
 * 2. A worker does not wait after an error. `Worker.retryIfFailed` waits only after ECONNREFUSED; in the main loop it
 *    otherwise emits the error, and `moveToActive` is called again at once. To reproduce: restart PostgreSQL under a worker,
 *    so that it answers 57P03 for some seconds. Together with the first fault the loop never leaves the microtask queue, and
 *    the process does not even react to signals.
 */
export const postgresBackend: typeof createPostgresBackend = (...args) => {
  const backend = createPostgresBackend(...args);
  forgetFailure(backend as unknown as Readiness);
  forgetFailure((backend as unknown as { connection: Readiness }).connection);
  const moveToActive = backend.moveToActive.bind(backend);
  backend.moveToActive = (...job) =>
    moveToActive(...job).catch(async (error) => {
      await sleep(pauseMs);
      throw error;
    });
  return backend;
};

function forgetFailure(what: Readiness): void {
  const ready = what.waitUntilReady.bind(what);
  what.waitUntilReady = () =>
    ready().catch((error) => {
      what.readyPromise = undefined;
      throw error;
    });
}
