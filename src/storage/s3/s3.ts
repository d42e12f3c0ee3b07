import { randomUUID } from 'node:crypto';
import { addAbortSignal, Readable } from 'node:stream';
import { DeleteObjectCommand, GetObjectCommand, HeadObjectCommand, ListObjectsV2Command } from '@aws-sdk/client-s3';
import { Upload as StreamUpload } from '@aws-sdk/lib-storage';
import { StorageUnavailable } from '../../errors.ts';
import { unlessAborted } from '../abort.ts';
import { bucketIdKey } from '../keys.ts';
import { type Meter, metered, type Sums, sumsOf, WrongLength } from '../meter.ts';
import type { PutOptions, Storage, Stored, StoredObject } from '../storage.ts';
import { findProofs, type Proof, probeKey, proofs, removeProbes, summing } from './checksum-support.ts';
import { agentsTo, connect, placeOf, type S3Options, stoppedBy, unquoted, writeSettings } from './client.ts';
import { classify, codeOf, gotNoAnswer, statusOf } from './errors.ts';
import { createSender, type PutAnswer } from './send.ts';
import { sweepUploads } from './sweep.ts';
import { isMd5OfParts, s3Uploads } from './uploads.ts';

/** The library may call a file anything; of that a header holds printable ASCII (RFC 9110, section 8.3.1), and not much. */
const isType = (contentType: string) => /^[\x20-\x7e]{1,255}$/.test(contentType);

/** The largest body of one PUT (S3 user guide, "Uploading objects"). */
const largestPut = 5 * 2 ** 30;
const mostParts = 10_000;

/**
 * Objects in an S3-compatible store. A body of known length is one streamed PUT; one that is longer than a PUT may be, or
 * whose length is unknown, goes through lib-storage's Upload, which buffers four parts and cannot be resumed.
 */
export async function openS3(options: S3Options): Promise<Storage> {
  const { bucket } = options;
  const agents = agentsTo(options);
  const client = connect(options, agents);
  const send = createSender(client, agents, options);
  const full = (key: string) => (options.prefix ? `${options.prefix}/${key}` : key);
  const at = (key: string) => ({ Bucket: bucket, Key: full(key) });
  const own = (key: string) => (options.prefix ? key.slice(options.prefix.length + 1) : key);
  const name = `s3://${bucket}${options.prefix && `/${options.prefix}`}`;

  /** Detected once with small objects, unless it is remembered. */
  let proof: Promise<Proof> | undefined;
  async function howToProve(): Promise<Proof> {
    if (options.checksums !== 'auto') return options.checksums;
    proof ??= (async () => {
      const place = placeOf(options);
      const remembered = await options.memory?.recall(place).catch(() => undefined);
      const known = proofs.find((each) => each === remembered);
      if (known) return known;
      const probe = { content: Buffer.from(`probe ${randomUUID()}`), written: new Set<string | undefined>() };
      try {
        const { value: best } = await findProofs(client, send, target(probeKey, {}), probe).next();
        await options.memory?.keep(place, best!).catch(() => {});
        return best!;
      } finally {
        await removeProbes(client, at(probeKey), probe.written);
      }
    })();
    try {
      return await proof;
    } catch (error) {
      proof = undefined;
      throw classify(error, name);
    }
  }

  let asking: Promise<boolean> | undefined;
  /** Whether the store answers at all, whatever it says. */
  async function answers(signal: AbortSignal | undefined): Promise<boolean> {
    asking ??= client
      .send(new HeadObjectCommand(at(bucketIdKey)), {
        abortSignal: AbortSignal.timeout(10_000),
      })
      .then(
        () => true,
        (error) => statusOf(error) !== undefined,
      )
      .finally(() => {
        asking = undefined;
      });
    return unlessAborted(asking, signal).catch(() => true);
  }

  /** A call without an answer concerns only itself, unless the store answers nobody: then it is StorageUnavailable. */
  async function failure(error: unknown, signal?: AbortSignal): Promise<unknown> {
    const classified = classify(error, name);
    if (!gotNoAnswer(classified) || (await answers(signal))) return classified;
    return new StorageUnavailable(`${name}: the store does not answer`, { cause: error });
  }

  function target(key: string, put: PutOptions) {
    return {
      ...at(key),
      ContentType: put.contentType && isType(put.contentType) ? put.contentType : 'application/octet-stream',
      ...(put.contentDisposition && { ContentDisposition: put.contentDisposition }),
      ...(put.metadata && { Metadata: put.metadata }),
      ...writeSettings(options),
    };
  }

  async function writeBytes(key: string, given: Buffer | string, put: PutOptions): Promise<Stored> {
    const { signal, fence } = put;
    // The caller may change its buffer while this waits.
    const body = Buffer.from(given);
    const bytes = body.length;
    if (put.bytes !== undefined && put.bytes !== bytes) {
      throw new WrongLength(`the body has ${bytes} bytes, not ${put.bytes}`);
    }
    const proof = await unlessAborted(howToProve(), signal);
    const { md5, onChunk, checksumOf } = summing(proof);
    const sums = sumsOf(body, { md5 });
    onChunk?.(body);
    if (fence) await unlessAborted(fence(), signal);
    signal?.throwIfAborted();
    try {
      const answer = await send({ target: target(key, put), body, bytes, checksum: checksumOf(sums), signal });
      const etag = await proveStored(key, sums, answer);
      return { key, bytes, etag, checksums: sums.checksums() };
    } catch (error) {
      signal?.throwIfAborted();
      throw await failure(error, signal);
    }
  }

  async function writeStream(key: string, body: Readable, put: PutOptions): Promise<Stored> {
    const { bytes: expected, signal, fence } = put;
    const inParts = expected === undefined || expected > largestPut;
    const partBytes = inParts ? Math.max(16 * 2 ** 20, Math.ceil((expected ?? 0) / mostParts)) : undefined;
    const summed = howToProve().then(summing);
    const meter = metered(body, { expected, partBytes, fence, signal, ready: summed });
    try {
      const { checksumOf } = await unlessAborted(summed, signal);
      const checksum = checksumOf(meter);
      const answer = inParts
        ? await uploadStream(key, meter, { ...put, summed: checksum !== undefined }, partBytes!)
        : await send({ target: target(key, put), body: meter, bytes: expected, checksum, signal });
      if (!meter.whole) throw new Error(`store ${key}: the store answered before it had the whole body`);
      const etag = await proveStored(key, meter, answer);
      return { key, bytes: meter.passed, etag, checksums: meter.checksums() };
    } catch (error) {
      signal?.throwIfAborted();
      throw meter.bodyError ?? (await failure(error, signal));
    } finally {
      body.destroy();
      meter.destroy();
    }
  }

  /** A stream whose length is unknown or too large for one PUT. The parts of one that fails are removed. */
  async function uploadStream(
    key: string,
    body: Meter,
    { signal, ...put }: PutOptions & { summed: boolean },
    partSize: number,
  ): Promise<PutAnswer> {
    const upload = new StreamUpload({
      client,
      params: {
        ...target(key, put),
        Body: body,
        ...(put.summed && { ChecksumAlgorithm: 'CRC32', ChecksumType: 'FULL_OBJECT' }),
      },
      queueSize: 4,
      partSize,
      leavePartsOnError: false,
    });
    // Rejects at once; the parts under way end in the background, and are removed then.
    const stop = () => void upload.abort();
    signal?.addEventListener('abort', stop, { once: true });
    try {
      const { ETag, ChecksumCRC32, VersionId } = await upload.done();
      return { etag: ETag, crc32: ChecksumCRC32, crc64nvme: undefined, versionId: VersionId };
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  /** Compares what the store has with what was sent, and returns its ETag. A wrong object is removed. */
  async function proveStored(key: string, meter: Sums, answer: PutAnswer): Promise<string | undefined> {
    // Some stores answer with an empty ETag.
    const answered = unquoted(answer.etag) || undefined;
    const refuse = async (actual: string, expected: string) => {
      // Another writer may have replaced it: only an object with the ETag of our answer is removed.
      const there = await describe(key).catch(() => undefined);
      if (answered && there?.etag === answered) {
        await client.send(new DeleteObjectCommand(at(key))).catch(() => {});
      }
      throw new Error(`store ${key}: the store has ${actual} of a body with ${expected}`);
    };
    // Some stores have their own form of ETag for an upload in parts: it proves nothing.
    const comparable = (etag: string) =>
      meter.etag && (!meter.etag.includes('-') || isMd5OfParts(etag)) ? meter.etag : undefined;
    if (answered && comparable(answered)) {
      if (answered !== meter.etag) await refuse(`ETag ${answered}`, meter.etag!);
      return answered;
    }
    const { crc32 } = meter.checksums();
    if (answer.crc32 && !answer.crc32.includes('-')) {
      const theirs = Buffer.from(answer.crc32, 'base64').toString('hex');
      if (theirs !== crc32) await refuse(`CRC-32 ${theirs}`, crc32);
      return answered;
    }
    const found = await describe(key);
    if (!found) throw new Error(`store ${key}: the store took it, and has it not`);
    // Another ETag means that another writer has replaced it since.
    if (answered && found.etag !== answered) return answered;
    if (found.bytes !== meter.passed) await refuse(`${found.bytes} bytes`, `${meter.passed}`);
    if (found.etag && comparable(found.etag) && found.etag !== meter.etag)
      await refuse(`ETag ${found.etag}`, meter.etag!);
    return found.etag;
  }

  async function describe(key: string, signal?: AbortSignal): Promise<StoredObject | undefined> {
    try {
      const head = await client.send(new HeadObjectCommand(at(key)), stoppedBy(signal));
      return { key, bytes: head.ContentLength ?? 0, etag: unquoted(head.ETag), modified: head.LastModified };
    } catch (error) {
      signal?.throwIfAborted();
      // A HEAD has no body to say that it is the bucket that is missing; `check` does.
      if (statusOf(error) === 404) return undefined;
      throw await failure(error, signal);
    }
  }

  const uploads = s3Uploads({ client, send, at, target, howToProve, describe, failure });

  return {
    name,
    put: (key, body, put = {}) => (body instanceof Readable ? writeStream(key, body, put) : writeBytes(key, body, put)),
    uploads,
    async get(key, { signal } = {}) {
      try {
        const { Body } = await client.send(new GetObjectCommand(at(key)), stoppedBy(signal));
        return signal ? addAbortSignal(signal, Body as Readable) : (Body as Readable);
      } catch (error) {
        signal?.throwIfAborted();
        if (statusOf(error) === 404 && codeOf(error) !== 'NoSuchBucket') return undefined;
        throw await failure(error, signal);
      }
    },
    head: (key, { signal } = {}) => describe(key, signal),
    async *list(prefix, { signal } = {}) {
      let after: string | undefined;
      do {
        const page = await client
          .send(
            new ListObjectsV2Command({ Bucket: bucket, Prefix: full(prefix), ContinuationToken: after }),
            stoppedBy(signal),
          )
          .catch(async (error) => {
            signal?.throwIfAborted();
            throw await failure(error, signal);
          });
        for (const entry of page.Contents ?? []) {
          yield {
            key: own(entry.Key!),
            bytes: entry.Size ?? 0,
            etag: unquoted(entry.ETag),
            modified: entry.LastModified,
          };
        }
        after = page.IsTruncated ? page.NextContinuationToken : undefined;
      } while (after);
    },
    async remove(key) {
      await client.send(new DeleteObjectCommand(at(key))).catch(async (error) => {
        throw await failure(error);
      });
    },
    sweep: (what) =>
      sweepUploads(client, options, what, uploads.abort).catch((error) => {
        what.signal?.throwIfAborted();
        throw classify(error, name);
      }),
    async check() {
      try {
        // As a stream, for some stores take a body at hand and refuse that.
        await writeStream(probeKey, Readable.from([Buffer.from('probe')]), { bytes: 5 });
        const { VersionId } = await client.send(new HeadObjectCommand(at(probeKey))).catch((error) => {
          // Another process has removed its own probe from the same key.
          if (statusOf(error) === 404) return { VersionId: undefined };
          throw error;
        });
        const removed = client.send(new DeleteObjectCommand({ ...at(probeKey), VersionId }));
        // A version may be locked, or only be removed by others. Without versions it must work.
        await (VersionId ? removed.catch(() => {}) : removed);
      } catch (error) {
        const reason = classify(error, name);
        throw reason instanceof StorageUnavailable
          ? reason
          : new StorageUnavailable(`${name}: the store does not work`, { cause: reason });
      }
    },
    async close() {
      client.destroy();
    },
  };
}
