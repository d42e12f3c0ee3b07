import type { Reason } from '../floor/reason-codes.ts';
import type { AssetContents } from '../store/verifications/contents.ts';

type NotMirrored = Extract<Reason, { code: 'not_mirrored' }>;

/** Why an asset is not in the bucket, as exactly as the records know, without its name; null: it is there. */
export function whyNot({ state, reason, skipped, nextAt, media, hasNoReader }: AssetContents): NotMirrored | null {
  const code = 'not_mirrored';
  const name = null;
  if (skipped) return { code, name, state: 'skipped', reason };
  switch (state) {
    case 'mirrored':
      return null;
    case 'gone':
      return media ? null : { code, name, state, reason: { code: 'gone', inBucket: false } };
    case 'unavailable':
      return { code, name, state, reason: reason ?? { code: 'no_file', status: state } };
    case 'pending': {
      if (hasNoReader) return { code, name, state, reason: { code: 'no_reader' } };
      const isLater = reason && nextAt && nextAt.getTime() > Date.now();
      return { code, name, state, reason, ...(isLater && { nextAt: nextAt.toISOString() }) };
    }
    default:
      return { code, name, state, reason };
  }
}

/** The library has no file, so nothing is missing in the bucket. */
export function isAbsent({ state, media }: AssetContents): boolean {
  return state === 'unavailable' || state === 'processing' || (state === 'gone' && media === null);
}
