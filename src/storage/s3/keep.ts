import {
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CopyObjectCommand,
  CreateMultipartUploadCommand,
  HeadObjectCommand,
  type HeadObjectCommandOutput,
  UploadPartCopyCommand,
} from '@aws-sdk/client-s3';
import { measure } from '../meter.ts';
import type { KeepOptions, KeptObject } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { algorithmFor, uploadChecksums } from './checksum-support.ts';
import { stoppedBy, unquoted } from './client.ts';
import { statusOf } from './errors.ts';
import { abortUpload } from './multipart-uploads.ts';
import { readObject } from './read.ts';

/** The largest object of one CopyObject, and so of one part (S3 API, CopyObject). */
const largestCopy = 5 * 2 ** 30;
const copyPartBytes = 2 ** 30;

type What = { key: string; as: string } & KeepOptions;

/** See `Storage.keep`. The store copies the object itself. Its content is read only if nothing else can prove the copy. */
export async function keep(bucket: Bucket, what: What): Promise<KeptObject | undefined> {
  const { key, as, found, signal } = what;
  try {
    const source = await headOf(bucket, key, signal);
    if (!source) return undefined;
    const { VersionId, bytes, etag } = source;
    if (found && (found.bytes !== bytes || found.etag !== etag))
      throw new Error(`keep ${key}: another object has replaced it`);
    // The version `null` was written without versioning. While versioning is suspended, the next write replaces it.
    if (VersionId && VersionId !== 'null') return { key, versionId: VersionId, bytes, etag };
    if (bytes > (bucket.options.largestCopy ?? largestCopy)) await copyInParts(bucket, what, source);
    else await copyWhole(bucket, what, source);
    const copy = await headOf(bucket, as, signal);
    if (copy?.bytes !== bytes) throw new Error(`keep ${key}: its copy has ${copy?.bytes ?? 'no'} bytes of ${bytes}`);
    if (!isSame(source, copy) && !(await hasSameContent(bucket, what))) {
      throw new Error(`keep ${key}: its copy has other content`);
    }
    return { key: as, bytes, etag: copy.etag };
  } catch (error) {
    throw await bucket.failure(error, signal);
  }
}

type Head = HeadObjectCommandOutput & { bytes: number; etag: string | undefined };

async function headOf(bucket: Bucket, key: string, signal: AbortSignal | undefined): Promise<Head | undefined> {
  const command = new HeadObjectCommand({ ...bucket.at(key), ChecksumMode: 'ENABLED' });
  const head = await bucket.client.send(command, stoppedBy(signal)).catch((error) => {
    if (statusOf(error) !== 404) throw error;
    return undefined;
  });
  return head && { ...head, bytes: head.ContentLength ?? 0, etag: unquoted(head.ETag) };
}

/** Whether ETags or checksums prove that two objects are the same. False is no proof that they differ: a copy may have others. */
function isSame(one: Head, other: Head): boolean {
  if (one.etag && one.etag === other.etag) return true;
  // A checksum that ends in `-` and a number was made of the checksums of the parts, so it depends on the size of the parts.
  return (['ChecksumSHA256', 'ChecksumCRC32', 'ChecksumCRC64NVME'] as const).some(
    (name) => one[name] && !one[name].includes('-') && one[name] === other[name],
  );
}

async function hasSameContent(bucket: Bucket, { key, as, signal }: What): Promise<boolean> {
  const sumOf = async (each: string) => {
    const body = await readObject(bucket, each, { signal });
    return body && (await measure(body, signal)).crc32;
  };
  const sum = await sumOf(key);
  return sum !== undefined && sum === (await sumOf(as));
}

const sourceOf = (bucket: Bucket, key: string, { ETag }: Head) => ({
  CopySource: [bucket.options.bucket, ...bucket.full(key).split('/')].map(encodeURIComponent).join('/'),
  CopySourceIfMatch: ETag,
});

async function copyWhole(bucket: Bucket, { key, as, signal }: What, source: Head): Promise<void> {
  // The content type is copied with the other metadata.
  const { ContentType: _, ...target } = bucket.target(as, {});
  const command = new CopyObjectCommand({ ...target, ...sourceOf(bucket, key, source) });
  await bucket.client.send(command, stoppedBy(signal));
}

/** Asks for a checksum of the whole object if possible: it proves the copy without reading it. */
async function copyInParts(bucket: Bucket, what: What, source: Head): Promise<void> {
  const summed = algorithmFor(await bucket.checksumMethod(), copyPartBytes) !== undefined;
  await copyParts(bucket, what, source, summed).catch(async (error) => {
    // Some stores keep no checksum of a part that they copy.
    if (!summed || statusOf(error) !== 400) throw error;
    await copyParts(bucket, what, source, false);
  });
}

async function copyParts(bucket: Bucket, { key, as, signal }: What, source: Head, summed: boolean): Promise<void> {
  const { client } = bucket;
  const { bytes, ContentType: contentType, ContentDisposition: contentDisposition, Metadata: metadata } = source;
  const target = bucket.target(as, { contentType, contentDisposition, metadata });
  // Not aborted by the signal, because an unknown upload could not be removed.
  const { UploadId } = await client.send(
    new CreateMultipartUploadCommand({ ...target, ...(summed && uploadChecksums.crc32) }),
  );
  const upload = { ...bucket.at(as), UploadId };
  const partBytes = Math.min(copyPartBytes, bucket.options.largestCopy ?? copyPartBytes);
  const Parts: CompletedPart[] = [];
  try {
    for (let from = 0; from < bytes; from += partBytes) {
      const PartNumber = Parts.length + 1;
      const CopySourceRange = `bytes=${from}-${Math.min(from + partBytes, bytes) - 1}`;
      const copying = { ...upload, ...sourceOf(bucket, key, source), PartNumber, CopySourceRange };
      const { CopyPartResult: part } = await client.send(new UploadPartCopyCommand(copying), stoppedBy(signal));
      Parts.push({ PartNumber, ETag: part?.ETag, ...(summed && { ChecksumCRC32: part?.ChecksumCRC32 }) });
    }
    const whole = summed && { ChecksumType: uploadChecksums.crc32.ChecksumType };
    await client.send(new CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts }, ...whole }));
  } catch (error) {
    await abortUpload(bucket, { id: UploadId!, key: as }).catch(() => {});
    throw error;
  }
}
