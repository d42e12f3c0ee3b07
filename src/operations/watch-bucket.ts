import { reasonOf } from '../errors.ts';

const freshMs = 10_000;

/** Why the bucket cannot be used; null: it can. One check serves all callers for some seconds. */
export function watchBucket(check: () => Promise<void>): () => Promise<string | null> {
  let looked: { at: number; reason: Promise<string | null> } | undefined;
  return () => {
    if (!looked || performance.now() - looked.at > freshMs) {
      looked = { at: performance.now(), reason: check().then(() => null, reasonOf) };
    }
    return looked.reason;
  };
}
