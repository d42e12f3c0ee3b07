import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  ListPartsCommand,
  type PutObjectCommandInput,
  type S3Client,
} from '@aws-sdk/client-s3';
import { unlessAborted } from '../abort.ts';
import { crc32Of } from '../crc32.ts';
import { metered } from '../meter.ts';
import {
  type Part,
  type PutOptions,
  partBytesFor,
  partLength,
  type StoredObject,
  type Upload,
  UploadLost,
  type Uploads,
} from '../storage.ts';
import { type Proof, summing } from './checksum-support.ts';
import { base64Of, stoppedBy, unquoted } from './client.ts';
import { codeOf, isUnsupported, statusOf } from './errors.ts';
import type { Send } from './send.ts';

/** What an upload needs of the bucket that it is in. */
export interface Bucket {
  client: S3Client;
  send: Send;
  at(key: string): { Bucket: string; Key: string };
  /** The key with content type, metadata and the settings for writes. */
  target(key: string, put: PutOptions): PutObjectCommandInput;
  howToProve(): Promise<Proof>;
  describe(key: string, signal?: AbortSignal): Promise<StoredObject | undefined>;
  /** What to throw for an error of the SDK. */
  failure(error: unknown, signal?: AbortSignal): Promise<unknown>;
}

/**
 * Uploads in parts to an S3 store. Parts have CRC-32 behind them wherever checksums are kept: it is what is remembered of
 * each, and sums up to the whole's.
 */
export function s3Uploads({ client, send, at, target, howToProve, describe, failure }: Bucket): Uploads {
  const of = ({ id, key }: Pick<Upload, 'id' | 'key'>) => ({ ...at(key), UploadId: id });

  /** Undefined without such an upload. @throws UploadLost where the store has no ListParts: what it has is unknown. */
  async function listParts(upload: Pick<Upload, 'id' | 'key'>, signal?: AbortSignal) {
    const parts = new Map<number, { bytes: number; etag: string }>();
    let after: string | undefined;
    do {
      try {
        const page = await client.send(
          new ListPartsCommand({ ...of(upload), PartNumberMarker: after }),
          stoppedBy(signal),
        );
        for (const { PartNumber, Size, ETag } of page.Parts ?? []) {
          parts.set(PartNumber!, { bytes: Size ?? 0, etag: unquoted(ETag) ?? '' });
        }
        after = page.IsTruncated ? page.NextPartNumberMarker : undefined;
      } catch (error) {
        signal?.throwIfAborted();
        if (isNoUpload(error)) return undefined;
        if (isUnsupported(error)) throw new UploadLost(`store ${upload.key}: the store cannot list stored parts`);
        throw await failure(error, signal);
      }
    } while (after);
    return parts;
  }

  const isKnown = (upload: Upload) =>
    listParts(upload).then(
      (parts) => parts !== undefined,
      () => true,
    );

  return {
    async begin(key, { signal, ...put }) {
      try {
        const summed = proofOfPart(await howToProve()) === 'crc32';
        // Not broken off by the signal: one that is made and not known could not be forgotten.
        const { UploadId } = await client.send(
          new CreateMultipartUploadCommand({
            ...target(key, put),
            ...(summed && { ChecksumAlgorithm: 'CRC32', ChecksumType: 'FULL_OBJECT' }),
          }),
        );
        if (!UploadId) throw new Error(`store ${key}: the store gave the upload no id`);
        return { id: UploadId, key, bytes: put.bytes, partBytes: partBytesFor(put.bytes) };
      } catch (error) {
        throw await failure(error, signal);
      }
    },

    async put(upload, number, body, { signal } = {}) {
      const bytes = partLength(upload, number);
      const { key, id: uploadId } = upload;
      const summed = howToProve().then((proof) => summing(proofOfPart(proof)));
      const meter = metered(body, { expected: bytes, signal, ready: summed });
      try {
        const checksum = (await unlessAborted(summed, signal)).checksumOf(meter);
        const answer = await send({
          target: at(key),
          part: { uploadId, number },
          body: meter,
          bytes,
          checksum,
          signal,
        });
        if (!meter.whole) throw new Error(`store part ${number} of ${key}: answered before it had the whole part`);
        const etag = unquoted(answer.etag);
        if (!etag) throw new Error(`store part ${number} of ${key}: the store gave it no ETag`);
        if (meter.etag && etag !== meter.etag) {
          throw new Error(`store part ${number} of ${key}: the store has ETag ${etag} of a part with ${meter.etag}`);
        }
        return { number, bytes, etag, crc32: meter.checksums().crc32 };
      } catch (error) {
        signal?.throwIfAborted();
        if (meter.bodyError) throw meter.bodyError;
        // A store that knows no such upload may hang up before it has read the part.
        // And one that was begun without checksums, under another setting, takes no part with one.
        const other = codeOf(error) === 'InvalidRequest';
        const knows = !isNoUpload(error) && !other && (statusOf(error) !== undefined || (await isKnown(upload)));
        throw knows ? await failure(error, signal) : lostUpload(upload, error);
      } finally {
        body.destroy();
        meter.destroy();
      }
    },

    list: (upload, { signal } = {}) => listParts(upload, signal),

    async complete(upload, parts, { signal } = {}) {
      const { key } = upload;
      let doubt: unknown;
      const summed = proofOfPart(await howToProve()) === 'crc32';
      try {
        // Not broken off by the signal: it would be as good as an answer that got lost.
        await client.send(
          new CompleteMultipartUploadCommand({
            ...of(upload),
            MultipartUpload: {
              Parts: parts.map(({ number, etag, crc32 }) => ({
                PartNumber: number,
                ETag: etag,
                ...(summed && { ChecksumCRC32: base64Of(crc32) }),
              })),
            },
            // The store compares it with what it has put together.
            ...(summed && { ChecksumCRC32: base64Of(crc32Of(parts)), ChecksumType: 'FULL_OBJECT' }),
          }),
        );
      } catch (error) {
        // Cut off, a 5xx, or NoSuchUpload after the success of an attempt before this one.
        doubt = error;
      }
      const found = await describe(key, signal);
      const expected = etagOfParts(parts);
      const same =
        found?.bytes === upload.bytes &&
        (expected !== undefined && isMd5OfParts(found.etag) ? found.etag === expected : !doubt);
      if (found && same) return { key, bytes: found.bytes, etag: found.etag, checksums: { crc32: crc32Of(parts) } };
      if (doubt && (isNoUpload(doubt) || !(await isKnown(upload)))) throw lostUpload(upload, doubt);
      if (doubt) throw await failure(doubt, signal);
      throw new Error(
        `store ${key}: the store has ${found ? `${found.bytes} bytes, ETag ${found.etag}` : 'nothing'} of ${upload.bytes} bytes in ${parts.length} parts`,
      );
    },

    async abort(upload) {
      // A part that is under way may still arrive behind the first abort (S3 API, AbortMultipartUpload).
      for (let tries = 0; tries < 10; tries++) {
        try {
          await client.send(new AbortMultipartUploadCommand(of(upload)));
        } catch (error) {
          // A store that cannot end uploads keeps the parts; another upload may begin all the same.
          if (isUnsupported(error)) return;
          if (!isNoUpload(error)) throw await failure(error);
        }
        const left = await listParts(upload).catch((error) => {
          // A store that cannot list parts is believed.
          if (!(error instanceof UploadLost)) throw error;
        });
        if (!left || left.size === 0) return;
        await sleep(200 * tries);
      }
      throw new Error(`store ${upload.key}: the store does not forget upload ${upload.id}`);
    },
  };
}

/** Only CRC-32 of parts can be combined into that of the whole object, so it also stands in for CRC-64. */
const proofOfPart = (proof: Proof): Proof => (proof === 'crc64nvme' ? 'crc32' : proof);

/** Stores differ in the word for an upload that they do not know: NoSuchUpload, or NoSuchKey. */
const isNoUpload = (error: unknown) => statusOf(error) === 404 && codeOf(error) !== 'NoSuchBucket';
const lostUpload = ({ key }: Upload, cause: unknown) =>
  new UploadLost(`store ${key}: the store knows its upload no more`, { cause });

/** The ETag of an object of parts whose own are MD5, as S3 makes it; undefined when they are something else. */
function etagOfParts(parts: Part[]): string | undefined {
  if (!parts.every(({ etag }) => /^[\da-f]{32}$/.test(etag))) return undefined;
  const all = Buffer.concat(parts.map(({ etag }) => Buffer.from(etag, 'hex')));
  return `${createHash('md5').update(all).digest('hex')}-${parts.length}`;
}
/** Whether an ETag has the form that S3 gives to objects of parts. */
export const isMd5OfParts = (etag: string | undefined) => /^[\da-f]{32}-\d+$/.test(etag ?? '');
