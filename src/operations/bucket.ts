import { reasonOf } from '../errors.ts';

const freshMs = 10_000;

/** Why the bucket takes nothing; null: it does. Each look writes an object, so one does for a while, and for everybody. */
export function watchBucket(check: () => Promise<void>): () => Promise<string | null> {
  let looked: { at: number; reason: Promise<string | null> } | undefined;
  return () => {
    if (!looked || Date.now() - looked.at > freshMs) {
      looked = { at: Date.now(), reason: check().then(() => null, reasonOf) };
    }
    return looked.reason;
  };
}
