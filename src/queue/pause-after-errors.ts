import { setTimeout as sleep } from 'node:timers/promises';
import type { BackendFactory, IQueueBackend } from 'bullmq';

/** How long a worker waits after an error. */
const pauseMs = 1000;

/** A backend of BullMQ with a pause after errors. By itself, a worker pauses only after ECONNREFUSED (see bullmq-issues.md). */
export function pausing<B extends IQueueBackend, C>(factory: BackendFactory<B, C>): BackendFactory<B, C> {
  return (...args) => {
    const backend = factory(...args);
    const moveToActive = backend.moveToActive.bind(backend);
    backend.moveToActive = (...job) =>
      moveToActive(...job).catch(async (error) => {
        await sleep(pauseMs);
        throw error;
      });
    return backend;
  };
}
