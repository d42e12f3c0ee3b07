import type { AssetContents } from '../store/verifications/contents.ts';

/** Why an asset is not in the bucket, as exactly as the records know; null: it is there. */
export function whyNot(asset: AssetContents): string | null {
  const { state, reason, nextAt } = asset;
  const because = reason ? `: ${reason}` : '';
  if (asset.skipped !== null) return reason;
  switch (state) {
    case 'mirrored':
      return null;
    case 'gone':
      return asset.media ? null : 'no longer in the library, and it was never mirrored';
    case 'unavailable':
      return reason ?? 'the library has no file of it';
    case 'processing':
      return `still transcoding at the library${because}`;
    case 'failed':
      return `failed${because || ', without a reason'}`;
    case 'transferring':
      return `on its way${because}`;
    case 'pending': {
      const later = reason && nextAt && nextAt.getTime() > Date.now() ? `; next try ${nextAt.toISOString()}` : '';
      return `not yet${because || ': waits for a free slot'}${later}`;
    }
  }
}

/** The library has no file to give, so the mirror lacks nothing. */
export function isAbsent({ state, media }: AssetContents): boolean {
  return state === 'unavailable' || state === 'processing' || (state === 'gone' && media === null);
}
