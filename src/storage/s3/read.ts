import { addAbortSignal, type Readable } from 'node:stream';
import { GetObjectCommand } from '@aws-sdk/client-s3';
import type { GetOptions } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { stoppedBy } from './client.ts';
import { isNotFound, statusOf } from './errors.ts';

/** See `Storage.get`. */
export async function readObject(
  bucket: Bucket,
  key: string,
  { signal, versionId: VersionId, range, found }: GetOptions = {},
): Promise<Readable | undefined> {
  try {
    const Range = range && `bytes=${range.first}-${range.last}`;
    const IfMatch = found?.etag && `"${found.etag}"`;
    const command = new GetObjectCommand({ ...bucket.at(key), VersionId, Range, IfMatch });
    const { Body } = await bucket.client.send(command, stoppedBy(signal));
    return signal ? addAbortSignal(signal, Body as Readable) : (Body as Readable);
  } catch (error) {
    if (statusOf(error) === 412 || isNotFound(error)) return undefined;
    throw await bucket.failure(error, signal);
  }
}
