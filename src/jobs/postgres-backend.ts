import { setTimeout as sleep } from 'node:timers/promises';
import { createPostgresBackend } from 'bullmq';

/** How long a worker waits after it could not get a job. */
const pauseMs = 1000;

/** Of two kinds in BullMQ. */
interface Readiness {
  waitUntilReady(): Promise<void>;
  readyPromise?: Promise<void> | undefined;
}

/**
 * BullMQ's backend on PostgreSQL, made to get over a database that is away at the wrong moment. As it comes (6.7.0) it keeps
 * the failure of its first connection as the answer to every call, and its worker asks again at once: in one turn of the
 * event loop for ever, in which nothing else is done any more, not even ending on a signal.
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
