import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  ListPartsCommand,
} from '@aws-sdk/client-s3';
import { checksumsOfParts } from '../content-hash.ts';
import { crc32Of } from '../crc32.ts';
import { isIntact } from '../meter.ts';
import {
  type Part,
  type PutOptions,
  partBytesFor,
  partLength,
  type ReadOptions,
  type Stored,
  type Upload,
  UploadLost,
  type Uploads,
} from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { algorithmFor, uploadChecksums } from './checksum-support.ts';
import { base64Of, stoppedBy, unquoted } from './client.ts';
import { isNotFound, isUnsupported, statusOf } from './errors.ts';
import { extendLock } from './object-lock.ts';
import { readObject } from './read.ts';
import { sendBody } from './send-body.ts';

/** Uploads in parts to an S3 store. Each part is sent with its checksum wherever the store keeps checksums. */
export const s3Uploads = (bucket: Bucket): Uploads => ({
  begin: (key, options) => beginUpload(bucket, key, options),
  put: (upload, number, body, options) => putPart(bucket, upload, number, body, options?.signal),
  list: (upload, options) => listParts(bucket, upload, options?.signal),
  complete: (upload, parts, options) => completeUpload(bucket, upload, parts, options?.signal),
  abort: (upload) => abortUpload(bucket, upload),
});

type Id = Pick<Upload, 'id' | 'key'>;
const atUpload = (bucket: Bucket, { id, key }: Id) => ({ ...bucket.at(key), UploadId: id });

export async function beginUpload(
  bucket: Bucket,
  key: string,
  { signal, ...put }: PutOptions & { bytes: number; partBytes?: number },
): Promise<Upload> {
  try {
    const { bytes, partBytes = partBytesFor(bytes) } = put;
    const checksum = algorithmFor(await bucket.checksumMethod(), partBytes);
    // Not aborted by the signal: an upload that exists, but whose id is unknown, could not be removed.
    const { UploadId } = await bucket.client.send(
      new CreateMultipartUploadCommand({ ...bucket.target(key, put), ...(checksum && uploadChecksums[checksum]) }),
    );
    if (!UploadId) throw new Error(`store ${key}: the store returned no id for the upload`);
    return { id: UploadId, key, bytes, partBytes, checksum };
  } catch (error) {
    throw await bucket.failure(error, signal);
  }
}

/** A part that is in memory is sent again after an error; a stream is sent once. */
export async function putPart(
  bucket: Bucket,
  upload: Upload,
  number: number,
  body: Readable | Buffer,
  signal: AbortSignal | undefined,
): Promise<Part> {
  const bytes = partLength(upload, number);
  const part = { uploadId: upload.id, number, checksum: upload.checksum };
  const { answer, sent } = await sendBody(
    bucket,
    { target: bucket.at(upload.key), part, body, bytes, signal },
    (error) => failureOfPart(bucket, upload, error, signal),
  );
  const what = `store part ${number} of ${upload.key}`;
  const etag = unquoted(answer.etag);
  if (!etag) throw new Error(`${what}: the store returned no ETag`);
  if (sent.etag && etag !== sent.etag) throw new Error(`${what}: the store has ETag ${etag} instead of ${sent.etag}`);
  return { number, bytes, etag, crc32: sent.checksums().crc32, blocks: sent.blocks() };
}

/** UploadLost if the store does not know the upload; it may then also close the connection before it has read the part. */
async function failureOfPart(bucket: Bucket, upload: Upload, error: unknown, signal: AbortSignal | undefined) {
  if (isNotFound(error)) return lostUpload(upload, error);
  if (statusOf(error) === undefined && !(await isKnown(bucket, upload))) return lostUpload(upload, error);
  return bucket.failure(error, signal);
}

/** Undefined without such an upload. @throws UploadLost if the store has no ListParts: its parts are unknown. */
async function listParts(bucket: Bucket, upload: Id, signal?: AbortSignal) {
  const parts = new Map<number, { bytes: number; etag: string }>();
  let PartNumberMarker: string | undefined;
  try {
    do {
      const command = new ListPartsCommand({ ...atUpload(bucket, upload), PartNumberMarker });
      const page = await bucket.client.send(command, stoppedBy(signal));
      for (const { PartNumber, Size, ETag } of page.Parts ?? []) {
        parts.set(PartNumber!, { bytes: Size ?? 0, etag: unquoted(ETag) ?? '' });
      }
      PartNumberMarker = page.IsTruncated ? page.NextPartNumberMarker : undefined;
    } while (PartNumberMarker);
    return parts;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    if (isUnsupported(error)) throw new UploadLost(`store ${upload.key}: the store cannot list stored parts`);
    throw await bucket.failure(error, signal);
  }
}

const isKnown = (bucket: Bucket, upload: Upload) =>
  listParts(bucket, upload).then(
    (parts) => parts !== undefined,
    () => true,
  );

export async function completeUpload(
  bucket: Bucket,
  upload: Upload,
  parts: Part[],
  signal?: AbortSignal,
): Promise<Stored> {
  const { key } = upload;
  // After an error, the object may be complete nevertheless: a lost answer, a 5xx, or NoSuchUpload after an earlier success.
  const doubt = await sendComplete(bucket, upload, parts);
  const found = await bucket.describe(key, signal);
  const expected = etagOfParts(parts);
  const isEqual =
    found?.bytes === upload.bytes &&
    (expected !== undefined && isMd5OfParts(found.etag) ? found.etag === expected : !doubt);
  // While the store still has the upload, an equal object is an earlier one: perhaps the damaged one that is to be repaired.
  const isCompleted = !doubt || isNotFound(doubt) || !(await isKnown(bucket, upload));
  // Without the upload, the object may be an earlier one, too: its content decides.
  const contents = { get: (of: string, options: ReadOptions) => readObject(bucket, of, options) };
  const isIntactThere = () => isIntact(contents, key, crc32Of(parts), { signal });
  const same = isEqual && isCompleted && (!doubt || (await isIntactThere()));
  // Ceph ignores the lock with which an upload was begun.
  if (same && bucket.options.objectLock) await extendLock(bucket, key);
  if (same) return { key, bytes: found.bytes, etag: found.etag, checksums: checksumsOfParts(upload, parts) };
  if (doubt && isCompleted) throw lostUpload(upload, doubt);
  if (doubt) throw await bucket.failure(doubt, signal);
  throw new Error(
    `store ${key}: expected ${upload.bytes} bytes in ${parts.length} parts, but the store has ${found ? `${found.bytes} bytes with ETag ${found.etag}` : 'no object'}`,
  );
}

/** Returns the error, if there was one. No signal: an aborted request could have succeeded too. */
async function sendComplete(bucket: Bucket, upload: Upload, parts: Part[]): Promise<unknown> {
  const isCrc32 = upload.checksum === 'crc32';
  const Parts = parts.map(({ number, etag, crc32, blocks }) => ({
    PartNumber: number,
    ETag: etag,
    ...(isCrc32 && { ChecksumCRC32: base64Of(crc32) }),
    ...(upload.checksum === 'sha256' && { ChecksumSHA256: base64Of(blocks![0]!) }),
  }));
  // The store compares the checksum with that of the object it has made.
  const { ChecksumType } = uploadChecksums.crc32;
  const whole = isCrc32 && { ChecksumCRC32: base64Of(crc32Of(parts)), ChecksumType };
  return bucket.client
    .send(new CompleteMultipartUploadCommand({ ...atUpload(bucket, upload), MultipartUpload: { Parts }, ...whole }))
    .then(
      () => undefined,
      (error) => error,
    );
}

export async function abortUpload(bucket: Bucket, upload: Id): Promise<void> {
  // A part that is being sent may still arrive after the first abort (S3 API, AbortMultipartUpload).
  for (let tries = 0; tries < 10; tries++) {
    try {
      await bucket.client.send(new AbortMultipartUploadCommand(atUpload(bucket, upload)));
    } catch (error) {
      // A store that cannot end uploads keeps the parts; another upload may begin nevertheless.
      if (isUnsupported(error)) return;
      if (!isNotFound(error)) throw await bucket.failure(error);
    }
    const left = await listParts(bucket, upload).catch((error) => {
      // Without ListParts nothing more can be checked.
      if (!(error instanceof UploadLost)) throw error;
    });
    if (!left || left.size === 0) return;
    await sleep(200 * tries);
  }
  throw new Error(`store ${upload.key}: the store still has parts of the aborted upload ${upload.id}`);
}

const lostUpload = ({ key }: Id, cause: unknown) =>
  new UploadLost(`store ${key}: the store no longer knows its upload`, { cause });

/** The ETag that S3 gives to an object of parts whose ETags are their MD5; undefined for other ETags. */
function etagOfParts(parts: Part[]): string | undefined {
  if (!parts.every(({ etag }) => /^[\da-f]{32}$/.test(etag))) return undefined;
  const all = Buffer.concat(parts.map(({ etag }) => Buffer.from(etag, 'hex')));
  return `${createHash('md5').update(all).digest('hex')}-${parts.length}`;
}
/** Whether an ETag has the form that S3 gives to objects of parts. */
const isMd5OfParts = (etag: string | undefined) => /^[\da-f]{32}-\d+$/.test(etag ?? '');
