import { createHash, randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import {
  AbortMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  HeadObjectCommand,
  type PutObjectCommandInput,
  type S3Client,
} from '@aws-sdk/client-s3';
import { crc32 } from './crc32.ts';
import type { Send } from './s3-send.ts';

/** How a store can be held to what it was sent: by a checksum it keeps of the whole object, by its ETag, or by the length alone. */
export const proofs = ['crc32', 'crc64nvme', 'md5-etag', 'none'] as const;
export type Proof = (typeof proofs)[number];

/** Where what was found out about a store is kept, so that not every process asks again. */
export interface Memory {
  recall(place: string): Promise<string | undefined>;
  keep(place: string, proof: Proof): Promise<void>;
}

/**
 * All that a store can, the best first, found out with small objects at the key of `target`, which are removed again. A
 * checksum behind the body goes before the ETag: it costs less, holds with every encryption, and a store that waits for it
 * does not take a body that was cut for a whole one. CRC-32 goes before CRC-64, which the SDK computes in JavaScript.
 */
export async function findProofs(client: S3Client, send: Send, target: PutObjectCommandInput): Promise<Proof[]> {
  const found: Proof[] = [];
  const content = Buffer.from(`probe ${randomUUID()}`);
  const crc = Buffer.alloc(4);
  crc.writeUInt32BE(crc32(content));
  const at = { Bucket: target.Bucket, Key: target.Key };
  const put = async (more: object) => {
    const Body = Readable.from([content], { objectMode: false });
    const input = { ...target, ...more, Body, ContentLength: content.length };
    const answer = await send(input, { crc32: () => crc.toString('hex') });
    written.push(answer.VersionId);
    const { ContentLength } = await client.send(new HeadObjectCommand(at));
    return ContentLength === content.length ? answer : undefined;
  };
  const written: (string | undefined)[] = [];
  try {
    for (const [proof, algorithm] of [
      ['crc32', 'CRC32'],
      ['crc64nvme', 'CRC64NVME'],
    ] as const) {
      const answer = await put({ ChecksumAlgorithm: algorithm }).catch(refused);
      const kept =
        proof === 'crc32' ? answer?.ChecksumCRC32 === crc.toString('base64') : Boolean(answer?.ChecksumCRC64NVME);
      if (kept && (await ofPartsToo(client, target, algorithm))) found.push(proof);
    }
    const etag = (await put({}))?.ETag?.replace(/^"|"$/g, '');
    if (etag === createHash('md5').update(content).digest('hex')) found.push('md5-etag');
    return [...found, 'none'];
  } finally {
    for (const VersionId of new Set(written)) {
      await client.send(new DeleteObjectCommand({ ...at, VersionId })).catch(() => {});
    }
  }
}

/** Some keep of an object in parts only the checksum of its parts' checksums. */
async function ofPartsToo(client: S3Client, target: PutObjectCommandInput, algorithm: 'CRC32' | 'CRC64NVME') {
  const { ContentLength: _, Body: __, ...rest } = target;
  const begun = await client
    .send(new CreateMultipartUploadCommand({ ...rest, ChecksumAlgorithm: algorithm, ChecksumType: 'FULL_OBJECT' }))
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
  const status = (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode;
  if (status !== undefined && [400, 405, 411, 415, 501].includes(status)) return undefined;
  throw error;
}
