import { reasonOf } from '../../floor/errors.ts';
import { recent } from '../../floor/recent.ts';

const freshMs = 10_000;

/** Why the bucket cannot be used; null: it can. One check serves all callers for some seconds. */
export function watchBucket(check: () => Promise<void>): () => Promise<string | null> {
  const reason = recent(() => check().then(() => null, reasonOf));
  return () => reason(freshMs);
}
