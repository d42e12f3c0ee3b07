import { randomUUID } from 'node:crypto';
import { addAbortSignal, Readable } from 'node:stream';
import {
  CompleteMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  ListObjectVersionsCommand,
  PutObjectCommand,
  type PutObjectCommandInput,
  type PutObjectCommandOutput,
  type S3Client,
  UploadPartCommand,
  type UploadPartCommandOutput,
} from '@aws-sdk/client-s3';
import { Upload as StreamUpload } from '@aws-sdk/lib-storage';
import { StorageUnavailable } from '../errors.ts';
import { bucketIdKey, ours } from './keys.ts';
import { Meter, openBody, type Sums, sumsOf, WrongLength } from './meter.ts';
import { findProofs, type Proof, proofs } from './proof.ts';
import {
  agentsTo,
  connect,
  leastChunk,
  placeOf,
  type S3Options,
  stoppedBy,
  type Trailer,
  trailers,
  unquoted,
} from './s3-client.ts';
import { codeOf, gotNoAnswer, sorted, statusOf } from './s3-errors.ts';
import { type Answer, sender } from './s3-send.ts';
import { s3Uploads } from './s3-uploads.ts';
import type { PutOptions, Storage, Stored, StoredObject } from './storage.ts';
import { sweepUploads } from './sweep.ts';

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
  const send = sender(client, agents);
  const full = (key: string) => (options.prefix ? `${options.prefix}/${key}` : key);
  const at = (key: string) => ({ Bucket: bucket, Key: full(key) });
  const own = (key: string) => (options.prefix ? key.slice(options.prefix.length + 1) : key);
  const name = `s3://${bucket}${options.prefix && `/${options.prefix}`}`;

  /** Found out once, with small objects, unless somebody remembers. */
  let proof: Promise<Proof> | undefined;
  async function howToProve(): Promise<Proof> {
    if (options.checksums !== 'auto') return options.checksums;
    proof ??= (async () => {
      const place = placeOf(options);
      const remembered = await options.memory?.recall(place).catch(() => undefined);
      const known = proofs.find((each) => each === remembered);
      if (known) return known;
      const [best] = await findProofs(client, send, target(`${ours}probe-${randomUUID()}`, {}));
      await options.memory?.keep(place, best!).catch(() => {});
      return best!;
    })();
    try {
      return await proof;
    } catch (error) {
      proof = undefined;
      throw sorted(error, name);
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

  /** A line that breaks once is the matter of one call; when nothing comes through any more, it is everyone's. */
  async function told(error: unknown, signal?: AbortSignal): Promise<unknown> {
    if (!gotNoAnswer(error) || (await answers(signal))) return error;
    return new StorageUnavailable(`${name}: the store does not answer`, { cause: error });
  }

  /** Ends all versions of an object, and what marks it as removed. */
  async function forget(key: string): Promise<void> {
    const { Versions = [], DeleteMarkers = [] } = await client.send(
      new ListObjectVersionsCommand({ Bucket: bucket, Prefix: full(key) }),
    );
    for (const { VersionId } of [...Versions, ...DeleteMarkers]) {
      await client.send(new DeleteObjectCommand({ ...at(key), VersionId }));
    }
  }

  function target(key: string, put: PutOptions): PutObjectCommandInput {
    return {
      ...at(key),
      ContentType: put.contentType && isType(put.contentType) ? put.contentType : 'application/octet-stream',
      ...(put.contentDisposition && { ContentDisposition: put.contentDisposition }),
      ...(put.metadata && { Metadata: put.metadata }),
      ...(options.storageClass && { StorageClass: options.storageClass as never }),
      ...(options.sse && { ServerSideEncryption: options.sse as never }),
      ...(options.sseKmsKeyId && { SSEKMSKeyId: options.sseKmsKeyId }),
    };
  }

  /** Bytes at hand, as they are now; they need no stream. */
  async function writeAtHand(key: string, given: Buffer | string, put: PutOptions): Promise<Stored> {
    const { signal, fence } = put;
    const body = Buffer.from(given);
    const bytes = body.length;
    const ofTheStore = async (error: unknown) => {
      signal?.throwIfAborted();
      throw await told(sorted(error, name), signal);
    };
    signal?.throwIfAborted();
    if (put.bytes !== undefined && put.bytes !== bytes) {
      throw new WrongLength(`the body has ${bytes} bytes, not ${put.bytes}`);
    }
    const prove = await unlessAborted(howToProve(), signal).catch(ofTheStore);
    const trailer = trailers[prove];
    const sums = sumsOf(body, { md5: prove === 'md5-etag' });
    if (fence) await unlessAborted(fence(), signal);
    signal?.throwIfAborted();
    const input = { ...target(key, put), Body: body, ContentLength: bytes };
    const etag = await send(
      { ...input, ...(trailer && { ChecksumAlgorithm: trailer }) },
      { ...stoppedBy(signal), crc32: () => sums.checksums().crc32 },
    )
      .then((answer) => proveStored(key, sums, answer))
      .catch(ofTheStore);
    return { key, bytes, etag, checksums: sums.checksums() };
  }

  async function write(key: string, body: Readable, put: PutOptions): Promise<Stored> {
    const length = put.bytes;
    const inParts = length === undefined || length > largestPut;
    const partBytes = Math.max(16 * 2 ** 20, Math.ceil((length ?? 0) / mostParts));
    const flow = openBody(body, put.signal);
    const { breaker, broken } = flow;
    try {
      breaker.signal.throwIfAborted();
      const prove = await Promise.race([howToProve(), broken]);
      const trailer = trailers[prove];
      const meter = new Meter({
        expected: length,
        md5: prove === 'md5-etag',
        fence: put.fence,
        ...(inParts && { partBytes }),
        ...(trailer === 'CRC64NVME' && { least: leastChunk }),
      });
      // The SDK neither settles nor stays alive when a body breaks under it: the body's end decides, and aborts the call.
      const flowed = flow.flowInto(meter);
      // A stream of no bytes would be sent chunked, which S3 does not take.
      const empty = length === 0;
      if (empty) {
        meter.resume();
        await Promise.race([flowed, broken]);
        breaker.signal.throwIfAborted();
      }
      const answer = inParts
        ? await upload(key, meter, { ...put, trailer }, partBytes, breaker)
        : await send(
            {
              ...target(key, put),
              Body: empty ? '' : meter,
              ContentLength: length,
              ...(trailer && { ChecksumAlgorithm: trailer }),
            },
            { abortSignal: breaker.signal, crc32: () => meter.checksums().crc32, proven: prove !== 'none' },
          );
      if (!meter.whole) throw new Error(`store ${key}: the store answered before it had the whole body`);
      const etag = await proveStored(key, meter, answer);
      return { key, bytes: meter.passed, etag, checksums: meter.checksums() };
    } catch (error) {
      // The store's refusal may come while the body still flows: then this ends it. Otherwise the first reason stays.
      if (!breaker.signal.aborted) breaker.abort(sorted(error, name));
      throw await told(breaker.signal.reason, put.signal);
    } finally {
      flow.close();
    }
  }

  /** In parts of `partBytes`; settles when the store has all of them, or has been told to forget them. */
  async function upload(
    key: string,
    body: Readable,
    put: PutOptions & { trailer?: Trailer | undefined },
    partBytes: number,
    breaker: AbortController,
  ): Promise<PutObjectCommandOutput> {
    // Upload's own abort returns before the parts are forgotten, waits for those under way, and a part that fails lets
    // the others read on to the body's end. So it gets a client that breaks off what carries bytes, and nothing else:
    // an upload whose creation is cut off could never be forgotten.
    const sender: S3Client = Object.create(client);
    // Upload does not know this one, and the store wants each part's back.
    const sums = new Map<number, string | undefined>();
    sender.send = async (command: unknown) => {
      if (command instanceof CompleteMultipartUploadCommand) {
        for (const part of command.input.MultipartUpload?.Parts ?? []) {
          part.ChecksumCRC64NVME ??= sums.get(part.PartNumber!);
        }
      }
      const carries = command instanceof UploadPartCommand || command instanceof PutObjectCommand;
      try {
        const answer = await client.send(command as never, carries ? { abortSignal: breaker.signal } : {});
        if (command instanceof UploadPartCommand) {
          sums.set(command.input.PartNumber!, (answer as UploadPartCommandOutput).ChecksumCRC64NVME);
        }
        return answer;
      } catch (error) {
        if (carries) breaker.abort(sorted(error, name));
        throw error;
      }
    };
    const transfer = new StreamUpload({
      client: sender,
      params: {
        ...target(key, put),
        Body: body,
        // Of the whole object, and not of the parts' checksums.
        ...(put.trailer && { ChecksumAlgorithm: put.trailer, ChecksumType: 'FULL_OBJECT' }),
      },
      queueSize: 4,
      partSize: partBytes,
      leavePartsOnError: false,
    });
    return transfer.done();
  }

  /** Compares what the store says it has with what was sent, and gives its ETag. What is proven wrong does not stay. */
  async function proveStored(key: string, meter: Sums, answer: Answer): Promise<string | undefined> {
    // Some answers have an empty one.
    const answered = unquoted(answer.ETag) || undefined;
    const refuse = async (theirs: string, ours: string) => {
      // Unless it is another's by now, or might be.
      const there = await describe(key).catch(() => undefined);
      if (answered && there?.etag === answered) {
        await client.send(new DeleteObjectCommand(at(key))).catch(() => {});
      }
      throw new Error(`store ${key}: the store has ${theirs} of a body with ${ours}`);
    };
    const proof = (etag: string) =>
      // Of an upload in parts some stores make it in their own way.
      meter.etag && (!meter.etag.includes('-') || /^[\da-f]{32}-\d+$/.test(etag)) ? meter.etag : undefined;
    if (answered && proof(answered)) {
      if (answered !== meter.etag) await refuse(`ETag ${answered}`, meter.etag!);
      return answered;
    }
    const { crc32 } = meter.checksums();
    if (answer.ChecksumCRC32 && !answer.ChecksumCRC32.includes('-')) {
      const theirs = Buffer.from(answer.ChecksumCRC32, 'base64').toString('hex');
      if (theirs !== crc32) await refuse(`CRC-32 ${theirs}`, crc32);
      return answered;
    }
    const found = await describe(key);
    if (!found) throw new Error(`store ${key}: the store took it, and has it not`);
    // With another ETag it is another's by now, written after this one.
    if (answered && found.etag !== answered) return answered;
    if (found.bytes !== meter.passed) await refuse(`${found.bytes} bytes`, `${meter.passed}`);
    if (found.etag && proof(found.etag) && found.etag !== meter.etag) await refuse(`ETag ${found.etag}`, meter.etag!);
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
      throw await told(sorted(error, name), signal);
    }
  }

  const uploads = s3Uploads({ client, send, name, at, target, howToProve, describe, told });

  return {
    name,
    put: (key, body, put = {}) => (body instanceof Readable ? write(key, body, put) : writeAtHand(key, body, put)),
    uploads,
    async get(key, { signal } = {}) {
      try {
        const { Body } = await client.send(new GetObjectCommand(at(key)), stoppedBy(signal));
        return signal ? addAbortSignal(signal, Body as Readable) : (Body as Readable);
      } catch (error) {
        signal?.throwIfAborted();
        if (statusOf(error) === 404 && codeOf(error) !== 'NoSuchBucket') return undefined;
        throw await told(sorted(error, name), signal);
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
            throw await told(sorted(error, name), signal);
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
        throw await told(sorted(error, name));
      });
    },
    sweep: (what) =>
      sweepUploads(client, options, what, uploads.abort).catch((error) => {
        what.signal?.throwIfAborted();
        throw sorted(error, name);
      }),
    async check() {
      const key = `${ours}probe-${randomUUID()}`;
      try {
        // As a stream, for some stores take a body at hand and refuse that.
        await write(key, Readable.from([Buffer.from('probe')]), { bytes: 5 });
        const { VersionId } = await client.send(new DeleteObjectCommand(at(key)));
        // Where versions are kept, what is removed stays, and this is asked for every few seconds.
        if (VersionId) await forget(key).catch(() => {});
      } catch (error) {
        const reason = sorted(error, name);
        throw reason instanceof StorageUnavailable
          ? reason
          : new StorageUnavailable(`${name}: the store does not work`, { cause: reason });
      }
    },
    async close() {
      client.destroy();
      void agents.atHand?.close();
    },
  };
}

/** What comes of it, or the signal's reason, whichever is there first. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work;
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const stop = () => reject(signal.reason);
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop, { once: true });
  return Promise.race([work, aborted]).finally(() => signal.removeEventListener('abort', stop));
}
