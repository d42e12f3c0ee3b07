import { type _Object, ListObjectsV2Command } from '@aws-sdk/client-s3';
import type { StoredObject } from '../storage.ts';
import { type Bucket, isArchived } from './bucket.ts';
import { stoppedBy, unquoted } from './client.ts';

/** See `Storage.list`. */
export async function* list(bucket: Bucket, prefix: string, signal?: AbortSignal): AsyncGenerator<StoredObject> {
  try {
    for await (const object of listCurrent(bucket, prefix, signal)) {
      const { Key, Size: bytes = 0, ETag, LastModified: modified } = object;
      const archived = isArchived({ StorageClass: object.StorageClass }) && { archived: true as const };
      yield { key: bucket.own(Key!), bytes, etag: unquoted(ETag), modified, ...archived };
    }
  } catch (error) {
    throw await bucket.failure(error, signal);
  }
}

/** The current objects below a prefix, as the store describes them. */
export async function* listCurrent(bucket: Bucket, prefix: string, signal?: AbortSignal): AsyncGenerator<_Object> {
  const { Bucket, Key: Prefix } = bucket.at(prefix);
  let ContinuationToken: string | undefined;
  do {
    const command = new ListObjectsV2Command({ Bucket, Prefix, ContinuationToken });
    const page = await bucket.client.send(command, stoppedBy(signal));
    yield* page.Contents ?? [];
    ContinuationToken = page.IsTruncated ? page.NextContinuationToken : undefined;
  } while (ContinuationToken);
}
