import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  HeadObjectCommand,
  ListPartsCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import type { Finding } from '../../../floor/finding.ts';
import { note, ok, wrong } from '../../findings.ts';
import { smallestPart } from '../../storage.ts';
import { isArchived } from '../bucket.ts';
import { probeKey } from '../checksum-support.ts';
import { isUnsupported, statusOf } from '../errors.ts';
import { listUploads } from '../sweep.ts';
import type { ProbedBucket } from './probed-bucket.ts';

/** Whether an object can be made of parts, and stored parts can be listed. */
export async function parts(bucket: ProbedBucket): Promise<Finding[]> {
  if (bucket.versionsStay) {
    const { listed } = await upload(bucket, [1]);
    return [
      partsFinding('are accepted', listed, '; completing an upload was not tried, because its object would stay'),
    ];
  }
  const equal = [smallestPart, smallestPart, 1];
  const unequal = [smallestPart, smallestPart + 1, 1];
  const first = await upload(bucket, unequal).catch((error) => {
    if (statusOf(error) === 403 || isUnsupported(error)) throw error;
  });
  const { listed, bytes } = first ?? (await upload(bucket, equal));
  const total = (first ? unequal : equal).reduce((sum, length) => sum + length, 0);
  if (bytes !== total) {
    return [
      wrong(
        'parts',
        `of ${total} bytes that were sent in parts, the store has ${bytes}`,
        'check that this is an S3 store',
      ),
    ];
  }
  return [partsFinding(first ? 'of any size are accepted' : 'of equal size are accepted, as the mirror sends', listed)];
}

function partsFinding(what: string, listed: boolean | undefined, more = ''): Finding {
  if (listed) return ok('parts', `${what}, and listed${more}`);
  const but = listed === undefined ? 'cannot be listed' : 'are not listed correctly';
  return note('parts', `${what}, but ${but}${more}`, 'an interrupted upload starts over with this store');
}

/** One upload of parts of these lengths. `listed` is undefined where the store cannot list parts. */
async function upload(bucket: ProbedBucket, lengths: number[]) {
  const { client, probe, checksum } = bucket;
  const UploadId = await bucket.beginUpload();
  const Parts: CompletedPart[] = [];
  for (const [index, length] of lengths.entries()) {
    const PartNumber = index + 1;
    const body = { Body: Buffer.alloc(length), ContentLength: length };
    const { ChecksumAlgorithm } = checksum ?? {};
    const { ETag, ChecksumCRC32, ChecksumSHA256 } = await client.send(
      new UploadPartCommand({ ...probe, ChecksumAlgorithm, UploadId, PartNumber, ...body }),
    );
    Parts.push({ PartNumber, ETag, ChecksumCRC32, ChecksumSHA256 });
  }
  const page = await client.send(new ListPartsCommand({ ...probe, UploadId })).catch((error) => {
    if (!isUnsupported(error)) throw error;
    return undefined;
  });
  const listed = page && lengths.every((length, index) => page.Parts?.[index]?.Size === length);
  if (bucket.versionsStay) return { listed, bytes: undefined };
  const done = await client.send(
    new CompleteMultipartUploadCommand({ ...probe, UploadId, MultipartUpload: { Parts } }),
  );
  bucket.uploads.delete(UploadId);
  bucket.written.add(done.VersionId);
  const { ContentLength } = await client.send(new HeadObjectCommand(probe));
  return { listed, bytes: ContentLength };
}

/** Whether the store accepts S3_STORAGE_CLASS: asked by an upload that is never completed, because some classes bill for months. */
export async function storageClass(bucket: ProbedBucket): Promise<Finding[]> {
  const { storageClass } = bucket.options;
  if (!storageClass) return [];
  const what = 'storage class';
  try {
    await bucket.beginUpload({ media: true });
  } catch (error) {
    if (statusOf(error) !== 400) throw error;
    return [wrong(what, `the store refuses the storage class ${storageClass}`, 'correct S3_STORAGE_CLASS')];
  }
  if (!isArchived({ StorageClass: storageClass as never })) return [ok(what, `media is stored as ${storageClass}`)];
  return [note(what, `media is stored as ${storageClass}: it cannot be read or verified without a restore`)];
}

/** Whether an upload in parts can be ended without an object. */
export async function canAbortUploads(bucket: ProbedBucket): Promise<Finding[]> {
  const { client, probe } = bucket;
  const UploadId = await bucket.beginUpload();
  try {
    await client.send(new AbortMultipartUploadCommand({ ...probe, UploadId }));
  } catch (error) {
    if (!isUnsupported(error)) throw error;
    const remedy = 'the parts of interrupted uploads stay in the store; remove them there';
    return [wrong('abort uploads', 'the store cannot abort an upload in parts', remedy)];
  }
  const left = await client.send(new ListPartsCommand({ ...probe, UploadId })).then(
    () => true,
    (error) => statusOf(error) !== 404 && !isUnsupported(error),
  );
  if (left)
    return [
      note('abort uploads', 'an aborted upload still exists', 'add a lifecycle rule that removes incomplete uploads'),
    ];
  bucket.uploads.delete(UploadId);
  return [ok('abort uploads', 'an aborted upload in parts is removed')];
}

export async function openUploads({ client, options }: ProbedBucket): Promise<Finding[]> {
  const dayAgo = Date.now() - 86_400_000;
  let open = 0;
  let old = 0;
  for await (const { key, begun } of listUploads(client, options)) {
    if (key === probeKey) continue;
    open++;
    if (begun && begun.getTime() < dayAgo) old++;
    if (open === 10_000) break;
  }
  if (old === 0) return [ok('open uploads', open === 0 ? 'none' : `${open}, none older than a day`)];
  const found = `${open}, of which ${old} are older than a day`;
  return [note('open uploads', found, 'a running asset-mirror removes its own')];
}
