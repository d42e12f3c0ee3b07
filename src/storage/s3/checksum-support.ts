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

/** How a store can be held to what it was sent: by a checksum it keeps of the whole object, by its ETag, or by the length alone. */
export const proofs = ['crc32', 'crc64nvme', 'md5-etag', 'none'] as const;
export type Proof = (typeof proofs)[number];

/** The SDK's name of the checksum that a store compares; undefined when a proof has none. */
export const algorithmOf = (proof: Proof) =>
  proof === 'crc32' ? 'CRC32' : proof === 'crc64nvme' ? 'CRC64NVME' : undefined;

/** Asks for one CRC-32 of the whole object, not one of its parts' checksums. */
export const crc32OfWhole = { ChecksumAlgorithm: 'CRC32', ChecksumType: 'FULL_OBJECT' } as const;

/** What a body is summed with while it passes, and from that the checksum that the store is to compare. */
export function summing(proof: Proof) {
  const crc64 = proof === 'crc64nvme' ? new Crc64Nvme() : undefined;
  return {
    md5: proof === 'md5-etag',
    onChunk: crc64 && ((chunk: Buffer) => crc64.update(chunk)),
    checksumOf(sums: Sums): Checksum | undefined {
      if (proof === 'crc32') return { algorithm: proof, base64: () => base64Of(sums.checksums().crc32) };
      return (
        crc64 && { algorithm: 'crc64nvme', base64: async () => Buffer.from(await crc64.digest()).toString('base64') }
      );
    },
  };
}

/** What the mirror writes to try something. One key for all of it: where versions are locked, no other key gets any. */
export const probeKey = `${ours}probe`;

/**
 * All that a store can, the best first, found out by writing `content` to the key of `target` once for each: the caller
 * who needs only the best stops there. The versions that were written are added to `written`, for `removeProbes`.
 *
 * A checksum behind the body goes before the ETag: it costs less, holds with every encryption, and a store that waits for it
 * does not take a body that was cut for a whole one. CRC-32 goes before CRC-64, which the SDK computes in JavaScript.
 */
export async function* findProofs(
  client: S3Client,
  send: Send,
  target: PutObjectCommandInput,
  { content, written }: { content: Buffer; written: Set<string | undefined> },
): AsyncGenerator<Proof> {
  const at = { Bucket: target.Bucket!, Key: target.Key! };
  /** Whether the store has what was sent, and says so in the way of the proof. */
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
  // Some stores take nothing without a checksum, as Amazon's with Object Lock.
  const isMd5 = await put('md5-etag').catch((error) => {
    if (!some) throw error;
  });
  if (isMd5) yield 'md5-etag';
  yield 'none';
}

/** Removes these versions of a probe, for good. Returns how many stay, because the store locks them or denies it. */
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

/** Some keep of an object in parts only the checksum of its parts' checksums. */
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

/** A store that does not know the thing says so in many ways; what is wrong with all of it is said of plain objects too. */
function refused(error: unknown): undefined {
  if (![400, 405, 411, 415, 501].includes(statusOf(error) ?? 0)) throw error;
}
