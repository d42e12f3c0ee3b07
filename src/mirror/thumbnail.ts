import mime from 'mime';
import { headBytes, isErrorPage } from '../source/recognize-content.ts';
import type { AssetDetail } from '../source/schemas.ts';
import { sidecarKeys } from '../storage/keys.ts';
import type { Stored } from '../storage/storage.ts';
import type { SidecarStates } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { keptOf } from './record.ts';

/** Thumbnails are small pictures; more than this is something else. */
const largestThumbnail = 32 * 2 ** 20;

/** Fetches the thumbnail. Undefined: the asset has none. */
export async function mirrorThumbnail(
  deps: MirrorDeps,
  of: { detail: AssetDetail; connectionId: string; key: string; signal: AbortSignal },
): Promise<Stored | undefined> {
  const { detail, key, signal } = of;
  if (!detail.thumbnailUrl) return undefined;
  const throttle = deps.lines.of(of.connectionId);
  const link = { url: detail.thumbnailUrl, renew: async () => detail.thumbnailUrl!, throttle };
  const download = await deps.downloader.open(link, signal);
  try {
    const type = download.contentType?.split(';')[0]?.trim().toLowerCase() ?? '';
    if (!/^(|image\/.*|(application|binary)\/octet-stream)$/.test(type)) {
      throw new Error(`the thumbnail is ${type}, not a picture`);
    }
    if (download.unbounded)
      throw new Error('nobody says how long the thumbnail is, so one that was cut could not be told');
    if ((download.bytes ?? 0) > largestThumbnail) throw new Error(`the thumbnail has ${download.bytes} bytes`);
    const extension = mime.getExtension(type) ?? 'jpg';
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of download.body) {
      size += chunk.length;
      if (size > largestThumbnail) throw new Error('the thumbnail goes on and on');
      chunks.push(chunk);
    }
    const picture = Buffer.concat(chunks);
    if (isErrorPage(picture.subarray(0, headBytes))) throw new Error('the thumbnail is a page of words, not a picture');
    const place = sidecarKeys.thumbnail(key, extension === 'jpeg' ? 'jpg' : extension === 'bin' ? 'jpg' : extension);
    return await deps.storage.put(place, picture, { contentType: type || 'image/jpeg', signal });
  } finally {
    download.body.destroy();
  }
}

export function keepThumbnail(sidecars: SidecarStates, stored: Stored): void {
  sidecars.thumbnail = { key: stored.key, bytes: stored.bytes };
  sidecars.thumbnailState = 'mirrored';
  sidecars.sidecarFiles[stored.key] = keptOf(stored);
}
