import { setTimeout as sleep } from 'node:timers/promises';
import { createPostgresBackend } from 'bullmq';

/** How long a worker waits after an error. */
const pauseMs = 1000;

/** BullMQ's PostgreSQL backend with a pause after errors: a worker pauses only after ECONNREFUSED (see bullmq-issues.md). */
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
