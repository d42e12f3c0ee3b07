import { Readable } from 'node:stream';
import { Crc64Nvme } from '@aws-sdk/checksums/crc';
import {
  AbortMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  HeadObjectCommand,
  type PutObjectCommandInput,
  type S3Client,
} from '@aws-sdk/client-s3';
import { ours } from '../keys.ts';
import { metered, type Sums } from '../meter.ts';
import { base64Of, unquoted } from './client.ts';
import { statusOf } from './errors.ts';
import type { Checksum, Send } from './send.ts';

/** How a stored object is verified: by a checksum that the store keeps of the whole object, by its ETag, or by its length. */
export const proofs = ['crc32', 'crc64nvme', 'md5-etag', 'none'] as const;
export type Proof = (typeof proofs)[number];

/** The SDK's name of the checksum that a store compares; undefined when a proof has none. */
export const algorithmOf = (proof: Proof) =>
  proof === 'crc32' ? 'CRC32' : proof === 'crc64nvme' ? 'CRC64NVME' : undefined;

/** Asks for one CRC-32 of the whole object, not one of its parts' checksums: of SHA-256, S3 keeps only the latter. */
export const crc32OfWhole = { ChecksumAlgorithm: 'CRC32', ChecksumType: 'FULL_OBJECT' } as const;

/**
 * What is computed while a body passes, and the checksum that the store is to compare. Parts have CRC-32 instead of CRC-64:
 * the checksum of the whole object can be computed from theirs.
 */
export function summing(proof: Proof, isPart = false) {
  const crc64 = proof === 'crc64nvme' && !isPart ? new Crc64Nvme() : undefined;
  return {
    md5: proof === 'md5-etag',
    onChunk: crc64 && ((chunk: Buffer) => crc64.update(chunk)),
    checksumOf(sums: Sums): Checksum | undefined {
      if (proof === 'crc32' || (isPart && proof === 'crc64nvme')) {
        return { algorithm: 'crc32', base64: () => base64Of(sums.checksums().crc32) };
      }
      return (
        crc64 && { algorithm: 'crc64nvme', base64: async () => Buffer.from(await crc64.digest()).toString('base64') }
      );
    },
  };
}

/** The one key for all probes: where versions are locked, only this key gets versions that stay. */
export const probeKey = `${ours}probe`;

/**
 * The proofs that a store supports, best first. Each is tried by writing `content` to the key of `target`; a caller may stop
 * at the first. The versions that were written are added to `written`, for `removeProbes`.
 *
 * A trailing checksum is better than the ETag: it costs less, works with every encryption, and a store that waits for it
 * never accepts a truncated body. CRC-32 is better than CRC-64, which the SDK computes in JavaScript.
 */
export async function* findProofs(
  client: S3Client,
  send: Send,
  target: PutObjectCommandInput,
  { content, written }: { content: Buffer; written: Set<string | undefined> },
): AsyncGenerator<Proof> {
  const at = { Bucket: target.Bucket!, Key: target.Key! };
  /** Whether the store has the bytes that were sent, and the proof shows it. */
  async function put(proof: Proof, tries = 3): Promise<boolean> {
    const { checksumOf, ...sums } = summing(proof);
    const body = metered(Readable.from([content]), { expected: content.length, ready: Promise.resolve(sums) });
    const checksum = checksumOf(body);
    const { etag, versionId, ...kept } = await send({
      target: { ...target, ...at },
      body,
      bytes: content.length,
      checksum,
    });
    written.add(versionId);
    const found = await client.send(new HeadObjectCommand({ ...at, VersionId: versionId })).catch((error) => {
      if (statusOf(error) !== 404 || tries === 1) throw error;
    });
    // Another process has removed its own probe from the same key.
    if (!found) return put(proof, tries - 1);
    if (found.ContentLength !== content.length) return false;
    return checksum ? kept[checksum.algorithm] === (await checksum.base64()) : unquoted(etag) === body.etag;
  }
  let some = false;
  for (const proof of ['crc32', 'crc64nvme'] as const) {
    if (!(await put(proof).catch(refused)) || !(await ofPartsToo(client, target, proof))) continue;
    some = true;
    yield proof;
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

/** Some stores keep only a checksum of the parts' checksums for an object in parts. */
async function ofPartsToo(client: S3Client, target: PutObjectCommandInput, proof: Proof) {
  const { ContentLength: _, Body: __, ...rest } = target;
  const begun = await client
    .send(
      new CreateMultipartUploadCommand({ ...rest, ChecksumAlgorithm: algorithmOf(proof), ChecksumType: 'FULL_OBJECT' }),
    )
    .catch(refused);
  if (!begun) return false;
  const { UploadId } = begun;
  await client
    .send(new AbortMultipartUploadCommand({ Bucket: target.Bucket, Key: target.Key, UploadId }))
    .catch(() => {});
  return begun.ChecksumType === 'FULL_OBJECT';
}

/** The statuses with which stores refuse a checksum they do not support. */
function refused(error: unknown): undefined {
  if (![400, 405, 411, 415, 501].includes(statusOf(error) ?? 0)) throw error;
}
