import mime from 'mime';
import { KnownError } from '../floor/errors.ts';
import { shortBody } from '../floor/short-text.ts';
import type { LeasedAsset } from '../queue/leases.ts';
import { headBytes, isErrorPage } from '../source/recognize-content.ts';
import type { AssetDetail } from '../source/schemas.ts';
import { sidecarKeys } from '../storage/keys.ts';
import type { Stored } from '../storage/storage.ts';
import type { SidecarStates } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { storedSidecarOf } from './record.ts';

/** The maximum size of a thumbnail. A larger body is not one. */
const largestThumbnail = 32 * 2 ** 20;

/** Copies the thumbnail into the bucket. Undefined if the asset has none. */
export async function mirrorThumbnail(
  deps: MirrorDeps,
  { asset, signal }: LeasedAsset,
  { thumbnailUrl }: AssetDetail,
  mediaKey: string,
): Promise<Stored | undefined> {
  if (!thumbnailUrl) return undefined;
  const throttle = deps.throttles.of(asset.connectionId);
  const link = { url: thumbnailUrl, renew: async () => thumbnailUrl, throttle };
  const download = await deps.downloader.open(link, signal);
  try {
    const type = download.contentType?.split(';')[0]?.trim().toLowerCase() ?? '';
    if (!/^(|image\/.*|(application|binary)\/octet-stream)$/.test(type)) {
      throw new KnownError({ code: 'wrong_content', of: 'thumbnail', got: type });
    }
    if (download.unbounded) throw new KnownError({ code: 'no_length', of: 'thumbnail' });
    if ((download.bytes ?? 0) > largestThumbnail) throw new Error(`the thumbnail has ${download.bytes} bytes`);
    const extension = mime.getExtension(type) ?? 'jpg';
    const picture = await shortBody(download.body, largestThumbnail);
    if (!picture) throw new Error(`the thumbnail has more than ${largestThumbnail} bytes`);
    if (picture.length === 0) throw new KnownError({ code: 'empty' });
    if (isErrorPage(picture.subarray(0, headBytes))) {
      throw new KnownError({ code: 'wrong_content', of: 'thumbnail', got: 'an error page' });
    }
    const key = sidecarKeys.thumbnail(mediaKey, ['jpeg', 'bin'].includes(extension) ? 'jpg' : extension);
    return await deps.storage.put(key, picture, { contentType: type || 'image/jpeg', signal });
  } finally {
    download.body.destroy();
  }
}

export function setThumbnail(sidecars: SidecarStates, stored: Stored): void {
  sidecars.thumbnail = { key: stored.key, bytes: stored.bytes };
  sidecars.thumbnailState = 'mirrored';
  sidecars.sidecarFiles[stored.key] = storedSidecarOf(stored);
}
