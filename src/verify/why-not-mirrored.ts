import { because, renderReason } from '../floor/reasons.ts';
import type { AssetContents } from '../store/verifications/contents.ts';

/** Why an asset is not in the bucket, as exactly as the records know; null: it is there. */
export function whyNot({ state, reason, skipped, nextAt, media, hasNoReader }: AssetContents): string | null {
  if (skipped) return renderReason(reason!);
  switch (state) {
    case 'mirrored':
      return null;
    case 'gone':
      return media ? null : renderReason({ code: 'gone', inBucket: false });
    case 'unavailable':
      return renderReason(reason ?? { code: 'no_file', status: state });
    case 'processing':
      return `still transcoding at the library${because(reason)}`;
    case 'failed':
      return `failed${because(reason) || ', without a reason'}`;
    case 'transferring':
      return `in transfer${because(reason)}`;
    case 'pending': {
      if (hasNoReader) return `not mirrored yet${because({ code: 'no_reader' })}`;
      const later = reason && nextAt && nextAt.getTime() > Date.now() ? `; next try ${nextAt.toISOString()}` : '';
      return `not mirrored yet${because(reason) || ': waits for a free slot'}${later}`;
    }
  }
}

/** The library has no file, so nothing is missing in the bucket. */
export function isAbsent({ state, media }: AssetContents): boolean {
  return state === 'unavailable' || state === 'processing' || (state === 'gone' && media === null);
}
