import { setTimeout as sleep } from 'node:timers/promises';
import { type BackendFactory, type IQueueBackend, isNotConnectionError } from 'bullmq';

/** How long a worker waits after an error. */
const pauseMs = 1000;

/** A backend of BullMQ with a pause after errors. Without this, a worker pauses only if the connection fails (see bullmq-issues.md). */
export function pausing<B extends IQueueBackend, C>(factory: BackendFactory<B, C>): BackendFactory<B, C> {
  return (...args) => {
    const backend = factory(...args);
    backend.moveToActive = afterErrors(backend.moveToActive.bind(backend));
    backend.waitForJob = afterErrors(backend.waitForJob.bind(backend));
    return backend;
  };
}

const afterErrors =
  <Args extends unknown[], T>(call: (...args: Args) => Promise<T>) =>
  (...args: Args): Promise<T> =>
    call(...args).catch(async (error) => {
      if (isNotConnectionError(error)) await sleep(pauseMs);
      throw error;
    });
