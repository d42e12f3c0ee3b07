import { setTimeout as sleep } from 'node:timers/promises';
import { createPostgresBackend } from 'bullmq';

/** How long a worker waits after an error. */
const pauseMs = 1000;

/**
 * BullMQ's PostgreSQL backend with a pause after errors. To be reported, version 6.7.0: `Worker.retryIfFailed` waits only
 * after ECONNREFUSED; after any other error of `moveToActive`, such as 57P03 while PostgreSQL starts, it retries at once.
 */
export const postgresBackend: typeof createPostgresBackend = (...args) => {
  const backend = createPostgresBackend(...args);
  const moveToActive = backend.moveToActive.bind(backend);
  backend.moveToActive = (...job) =>
    moveToActive(...job).catch(async (error) => {
      await sleep(pauseMs);
      throw error;
    });
  return backend;
};
