import { AbortMultipartUploadCommand, ListMultipartUploadsCommand, type S3Client } from '@aws-sdk/client-s3';
import { codeOf, connect, type S3Options } from './s3.ts';

/** An upload in parts that was begun below our prefix. Its key is told without the prefix. */
export interface OpenUpload {
  id: string;
  key: string;
  begun: Date | undefined;
}

/** Uploads below the prefix and nowhere else: another's uploads in the same bucket are none of ours. */
export async function* listUploads(
  client: S3Client,
  at: { bucket: string; prefix: string; below?: string },
): AsyncGenerator<OpenUpload> {
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

/**
 * Makes the store forget uploads in parts that were given up: those below our prefix which were begun before `olderThan`
 * and whose ids are not in `keep`. One whose age the store does not tell stays. Returns how many are gone.
 */
export async function sweepUploads(
  options: S3Options,
  what: { olderThan: Date; keep: ReadonlySet<string>; signal?: AbortSignal },
): Promise<number> {
  const client = connect(options);
  const { bucket, prefix } = options;
  let swept = 0;
  try {
    // All of them first: a page begins behind the last upload of the one before, which is to be there still.
    const given: OpenUpload[] = [];
    for await (const upload of listUploads(client, options)) {
      what.signal?.throwIfAborted();
      const { id, begun } = upload;
      if (begun && begun < what.olderThan && !what.keep.has(id)) given.push(upload);
    }
    for (const { id, key } of given) {
      what.signal?.throwIfAborted();
      const Key = prefix ? `${prefix}/${key}` : key;
      const gone = await client.send(new AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId: id })).then(
        () => true,
        (error) => {
          // Ended by somebody else meanwhile.
          if (codeOf(error) === 'NoSuchUpload') return false;
          throw error;
        },
      );
      if (gone) swept++;
    }
    return swept;
  } finally {
    client.destroy();
  }
}
