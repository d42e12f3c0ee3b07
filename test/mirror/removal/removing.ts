import { removeGone } from '../../../src/mirror/removal/remove-gone.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import type { Stage } from '../../support/stage.ts';

const signal = new AbortController().signal;

/** Removes the assets that are gone; returns how many were removed. */
export const removeFrom = (stage: Stage, storage = stage.ground.storage, store = stage.store) => {
  const { mirror } = stage;
  return removeGone({ store, storage, log: mirror.service.context.log, leaseMs: 60_000, signal }, 0);
};

/** The storage of the stage. Something happens before its first purge. */
export function beforePurge(stage: Stage, act: () => Promise<void>): Storage {
  const { storage } = stage.ground;
  let first: Promise<void> | undefined;
  return {
    ...storage,
    async *purge(at, options) {
      first ??= act();
      await first;
      yield* storage.purge(at, options);
    },
  };
}
