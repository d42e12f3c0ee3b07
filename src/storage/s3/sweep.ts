import { ListMultipartUploadsCommand, type S3Client } from '@aws-sdk/client-s3';
import { ours } from '../keys.ts';
import type { OpenUpload, Sweep } from '../storage.ts';
import { isUnsupported } from './errors.ts';

/** Uploads below the prefix and nowhere else: another's uploads in the same bucket are none of ours. */
export async function* listUploads(
  client: S3Client,
  at: { bucket: string; prefix: string; below?: string },
): AsyncGenerator<OpenUpload & { key: string }> {
  const folder = at.prefix && `${at.prefix}/`;
  let KeyMarker: string | undefined;
  let UploadIdMarker: string | undefined;
  do {
    const page = await client.send(
      new ListMultipartUploadsCommand({
        Bucket: at.bucket,
        Prefix: folder + (at.below ?? ''),
        KeyMarker,
        UploadIdMarker,
      }),
    );
    for (const { UploadId, Key, Initiated } of page.Uploads ?? []) {
      // Some stores do not mind the prefix.
      if (UploadId && Key?.startsWith(folder)) yield { id: UploadId, key: Key.slice(folder.length), begun: Initiated };
    }
    [KeyMarker, UploadIdMarker] = page.IsTruncated ? [page.NextKeyMarker, page.NextUploadIdMarker] : [];
  } while (KeyMarker);
}

/** So many at a time are asked about. */
const batch = 1000;
/** So many at a time are ended. */
const atOnce = 8;

/** See `Storage.sweep`. Without a prefix the whole bucket is in sight, which others may use as well. */
export async function sweepUploads(
  client: S3Client,
  at: { bucket: string; prefix: string },
  what: Sweep,
  abort: (upload: { id: string; key: string }) => Promise<void>,
): Promise<number> {
  const shared = at.prefix === '';
  // All of them first: a page begins behind the last upload of the one before, which is to be there still.
  const old: (OpenUpload & { key: string })[] = [];
  try {
    for await (const upload of listUploads(client, at)) {
      what.signal?.throwIfAborted();
      // One whose age the store does not tell stays.
      if (upload.begun && upload.begun < what.olderThan) old.push(upload);
    }
  } catch (error) {
    // A store that cannot list uploads has to remove abandoned ones by itself.
    if (!isUnsupported(error)) throw error;
  }
  let swept = 0;
  for (let from = 0; from < old.length; from += batch) {
    const some = old.slice(from, from + batch);
    const strays = await what.strays(some, { shared });
    const given = some.filter(({ id, key }) => strays.has(id) || (shared && key.startsWith(ours))).values();
    const lane = async () => {
      for (const { id, key } of given) {
        what.signal?.throwIfAborted();
        await abort({ id, key });
        swept++;
      }
    };
    await Promise.all(Array.from({ length: atOnce }, lane));
  }
  return swept;
}
