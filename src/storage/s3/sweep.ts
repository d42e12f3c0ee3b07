import { ListMultipartUploadsCommand, type S3Client } from '@aws-sdk/client-s3';
import { concurrently } from '../../floor/concurrently.ts';
import { ours } from '../keys.ts';
import type { OpenUpload, Sweep } from '../storage.ts';
import { isUnsupported } from './errors.ts';

/** Unfinished uploads below the prefix. */
export async function* listUploads(
  client: S3Client,
  at: { bucket: string; prefix: string },
): AsyncGenerator<OpenUpload & { key: string }> {
  const folder = at.prefix && `${at.prefix}/`;
  let KeyMarker: string | undefined;
  let UploadIdMarker: string | undefined;
  do {
    const page = await client.send(
      new ListMultipartUploadsCommand({ Bucket: at.bucket, Prefix: folder, KeyMarker, UploadIdMarker }),
    );
    for (const { UploadId, Key, Initiated } of page.Uploads ?? []) {
      // Some stores ignore the prefix of a request.
      if (UploadId && Key?.startsWith(folder)) yield { id: UploadId, key: Key.slice(folder.length), begun: Initiated };
    }
    [KeyMarker, UploadIdMarker] = page.IsTruncated ? [page.NextKeyMarker, page.NextUploadIdMarker] : [];
  } while (KeyMarker);
}

/** Uploads per call of `strays`, and aborts at the same time. */
const batch = 1000;
const atOnce = 8;

/** See `Storage.sweep`. Without a prefix this covers the whole bucket, which other programs may use too. */
export async function sweepUploads(
  client: S3Client,
  at: { bucket: string; prefix: string },
  what: Sweep,
  abort: (upload: { id: string; key: string }) => Promise<void>,
): Promise<number> {
  const shared = at.prefix === '';
  // List all before aborting any: each page begins after the last upload of the previous one, which must still exist.
  const old: (OpenUpload & { key: string })[] = [];
  try {
    for await (const upload of listUploads(client, at)) {
      what.signal?.throwIfAborted();
      // An upload of unknown age stays.
      if (upload.begun && upload.begun < what.olderThan) old.push(upload);
    }
  } catch (error) {
    // A store that cannot list uploads must remove abandoned ones itself.
    if (!isUnsupported(error)) throw error;
  }
  let swept = 0;
  for (let from = 0; from < old.length; from += batch) {
    const some = old.slice(from, from + batch);
    const strays = await what.strays(some, { shared });
    const abandoned = some.filter(({ id, key }) => strays.has(id) || (shared && key.startsWith(ours)));
    await concurrently(abandoned, atOnce, async ({ id, key }) => {
      what.signal?.throwIfAborted();
      await abort({ id, key });
      swept++;
    });
  }
  return swept;
}
