import { Readable } from 'node:stream';
import {
  AbortMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  HeadObjectCommand,
  type PutObjectCommandInput,
  type S3Client,
} from '@aws-sdk/client-s3';
import { blockBytes } from '../content-hash.ts';
import { ours } from '../keys.ts';
import { metered, type Sums } from '../meter.ts';
import type { Upload } from '../storage.ts';
import { base64Of, unquoted } from './client.ts';
import { codeOf, isNotFound, statusOf } from './errors.ts';
import type { Algorithm, Checksum, Send } from './send.ts';

/** How a stored object is verified: by a checksum that the store computes and keeps, by its ETag, or by its length. */
export const checksumMethods = ['sha256', 'crc32', 'md5-etag', 'none'] as const;
export type ChecksumMethod = (typeof checksumMethods)[number];

/**
 * The checksum to send with a body or part of `bytes`; undefined when a method has none. With `sha256`, a body longer than a block
 * of the content hash is sent with CRC-32: only the SHA-256 of each block is computed.
 */
export function algorithmFor(method: ChecksumMethod, bytes: number): Algorithm | undefined {
  if (method === 'md5-etag' || method === 'none') return undefined;
  return method === 'sha256' && bytes > blockBytes ? 'crc32' : method;
}

/** The fields that begin an upload. S3 keeps one CRC-32 of the whole object; for SHA-256, it can only combine that of the parts. */
export const uploadChecksums = {
  sha256: { ChecksumAlgorithm: 'SHA256', ChecksumType: 'COMPOSITE' },
  crc32: { ChecksumAlgorithm: 'CRC32', ChecksumType: 'FULL_OBJECT' },
} as const;

/** The checksum to send with a body whose sums are `sent`, once it has passed. */
export const checksumOf = (algorithm: Algorithm | undefined, sent: Sums): Checksum | undefined =>
  algorithm && { algorithm, base64: () => base64Of(sent.checksums()[algorithm]!) };

/** The one key for all probes: where versions are locked, only this key gets versions that stay. */
export const probeKey = `${ours}probe`;

/**
 * The methods that a store supports, best first. Each is tried by writing `content` to the key of `target`; a caller may stop
 * at the first. The versions that were written are added to `written`, for `removeProbes`.
 *
 * A trailing checksum is better than the ETag: it costs less, works with every encryption, and a store that waits for it
 * never accepts a truncated body. SHA-256 cannot be matched by other bytes; it needs CRC-32 for longer bodies.
 */
export async function* findMethods(
  client: S3Client,
  send: Send,
  target: PutObjectCommandInput,
  { content, written }: { content: Buffer; written: Set<string | undefined> },
): AsyncGenerator<ChecksumMethod> {
  const at = { Bucket: target.Bucket!, Key: target.Key! };
  /** Whether the store has the bytes that were sent, and the method shows it. */
  async function put(method: ChecksumMethod, tries = 3): Promise<boolean> {
    const { length: bytes } = content;
    const ready = Promise.resolve({ md5: method === 'md5-etag' });
    const body = metered(Readable.from([content]), { expected: bytes, hashed: true, ready });
    const checksum = checksumOf(algorithmFor(method, bytes), body);
    const { etag, versionId, sums: kept } = await send({ target: { ...target, ...at }, body, bytes, checksum });
    written.add(versionId);
    const head = (VersionId?: string) =>
      client.send(new HeadObjectCommand({ ...at, VersionId })).catch((error) => {
        if (!isNotFound(error) || tries === 1) throw error;
      });
    let found = await head();
    // Cloudflare R2 returns a version id for a PUT, but keeps no versions.
    if (found && !found.VersionId && written.delete(versionId)) written.add(undefined);
    // Another process has written its own probe to the same key.
    if (found?.VersionId && found.VersionId !== versionId) found = await head(versionId);
    // Another process has removed its own probe from the same key.
    if (!found) return put(method, tries - 1);
    if (found.ContentLength !== bytes) return false;
    return checksum ? kept[checksum.algorithm] === checksum.base64() : unquoted(etag) === body.etag;
  }
  const works = async (method: ChecksumMethod) =>
    (await put(method).catch(refused)) && (await worksInParts(client, target, algorithmFor(method, 1)!));
  let some = false;
  for (const method of ['sha256', 'crc32'] as const) {
    // Longer bodies have CRC-32. No object is written for it here: where versions are locked, each would stay.
    if (!(await works(method)) || (method === 'sha256' && !(await worksInParts(client, target, 'crc32')))) continue;
    some = true;
    yield method;
  }
  // Some stores require a checksum, as Amazon's with Object Lock.
  const isMd5 = await put('md5-etag').catch((error) => {
    if (!some) throw error;
  });
  if (isMd5) yield 'md5-etag';
  yield 'none';
}

/** Removes these versions of a probe. Returns how many stay, because the store locks them or denies the removal. */
export async function removeProbes(
  client: S3Client,
  { Bucket, Key }: Pick<PutObjectCommandInput, 'Bucket' | 'Key'>,
  written: Set<string | undefined>,
): Promise<number> {
  for (const VersionId of written) {
    await client.send(new DeleteObjectCommand({ Bucket, Key, VersionId })).then(
      () => written.delete(VersionId),
      () => {},
    );
  }
  return written.size;
}

/** Whether the store accepts the checksum for an upload, and will keep the requested type. Some stores keep another type. */
async function worksInParts(
  client: S3Client,
  target: PutObjectCommandInput,
  algorithm: NonNullable<Upload['checksum']>,
) {
  const { ContentLength: _, Body: __, ...rest } = target;
  const checksum = uploadChecksums[algorithm];
  const begun = await client.send(new CreateMultipartUploadCommand({ ...rest, ...checksum })).catch(refused);
  if (!begun) return false;
  const { UploadId } = begun;
  await client
    .send(new AbortMultipartUploadCommand({ Bucket: target.Bucket, Key: target.Key, UploadId }))
    .catch(() => {});
  return begun.ChecksumType === checksum.ChecksumType;
}

/** The answers with which stores refuse a checksum they do not support. Google Cloud Storage refuses the signature of a trailer. */
function refused(error: unknown): undefined {
  const isRefusal =
    [400, 405, 411, 415, 501].includes(statusOf(error) ?? 0) || codeOf(error) === 'SignatureDoesNotMatch';
  if (!isRefusal) throw error;
}
