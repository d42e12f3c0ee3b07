import { setTimeout as sleep } from 'node:timers/promises';
import { createPostgresBackend } from 'bullmq';

/** How long a worker waits after it could not get a job. */
const pauseMs = 1000;

/**
 * BullMQ's backend on PostgreSQL, whose workers wait after an error. To be reported, version 6.7.0: `Worker.retryIfFailed`
 * waits only after ECONNREFUSED. After any other error of `moveToActive`, as 57P03 while PostgreSQL starts, the main loop
 * calls it again at once.
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
