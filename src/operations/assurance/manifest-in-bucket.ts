import { text } from 'node:stream/consumers';
import { answerWithin } from '../../floor/within.ts';
import { manifestKey } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Link } from '../../store/verifications/manifests.ts';

/** What the bucket has of a manifest. `unknown`: the bucket does not answer. */
export const inBucketStates = ['same', 'missing', 'different', 'unknown'] as const;

/** How long a page waits for the bucket. */
const patienceMs = 5000;

/** Whether the bucket still has a manifest as the database knows it. */
export async function manifestInBucket(
  storage: Storage,
  { number, envelope }: Pick<Link, 'number' | 'envelope'>,
): Promise<(typeof inBucketStates)[number]> {
  try {
    return await answerWithin(patienceMs, async (signal) => {
      const body = await storage.get(manifestKey(number), { signal });
      if (!body) return 'missing';
      return (await text(body)) === envelope ? 'same' : 'different';
    });
  } catch {
    return 'unknown';
  }
}
