import { createHash, randomUUID } from 'node:crypto';
import { addAbortSignal, Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  ListPartsCommand,
  PutObjectCommand,
  type PutObjectCommandInput,
  type PutObjectCommandOutput,
  S3Client,
  UploadPartCommand,
  type UploadPartCommandOutput,
} from '@aws-sdk/client-s3';
import { Upload as StreamUpload } from '@aws-sdk/lib-storage';
import { Rejected, RetryLater, StorageUnavailable } from '../errors.ts';
import { crc32Of } from './crc32.ts';
import { bucketIdKey, ours } from './keys.ts';
import { Meter, openBody } from './meter.ts';
import { findProofs, type Memory, type Proof, proofs } from './proof.ts';
import {
  type Part,
  type PutOptions,
  partBytesFor,
  partLength,
  type Storage,
  type Stored,
  type StoredObject,
  type Upload,
  UploadLost,
  type Uploads,
} from './storage.ts';
import { sweepUploads } from './sweep.ts';

export interface S3Options {
  bucket: string;
  /** Without slashes at its ends; may be empty. */
  prefix: string;
  endpoint?: string | undefined;
  region?: string | undefined;
  forcePathStyle: boolean;
  checksums: 'auto' | 'crc32' | 'crc64nvme' | 'md5-etag' | 'none';
  storageClass?: string | undefined;
  sse?: string | undefined;
  sseKmsKeyId?: string | undefined;
  /** Sockets to the store. */
  connections: number;
  memory?: Memory | undefined;
}

/** What a proof that was found holds for: another bucket, store or encryption may have others. */
export function placeOf(options: S3Options): string {
  const { bucket, endpoint, region, sse, sseKmsKeyId } = options;
  return [`s3://${bucket}`, endpoint ?? 'AWS', region, sse, sseKmsKeyId].filter(Boolean).join(' ');
}

/** The largest body of one PUT (S3 user guide, "Uploading objects"). */
const largestPut = 5 * 2 ** 30;
const mostParts = 10_000;

/** Checksums that follow a body, and that the store compares before it keeps it. */
const trailers: Record<string, Trailer | undefined> = { crc32: 'CRC32', crc64nvme: 'CRC64NVME' };
type Trailer = 'CRC32' | 'CRC64NVME';
/** With a checksum behind it a body goes in chunks of at least so many bytes (S3 API, "Signature calculations: trailing headers"). */
const leastChunk = 8 * 2 ** 10;

export function connect(options: Pick<S3Options, 'endpoint' | 'region' | 'forcePathStyle' | 'connections'>): S3Client {
  const client = new S3Client({
    // With an endpoint of its own a store rarely has regions; without one the SDK looks where it always does.
    ...((options.region || options.endpoint) && { region: options.region ?? 'us-east-1' }),
    ...(options.endpoint && { endpoint: options.endpoint }),
    forcePathStyle: options.forcePathStyle,
    // Older stores refuse a streamed body with the trailing checksums that the SDK adds by itself.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    // What it would warn of comes back as an error.
    logger: { debug() {}, info() {}, warn() {}, error() {} },
    requestHandler: {
      connectionTimeout: 10_000,
      socketTimeout: 120_000,
      httpAgent: { maxSockets: options.connections, keepAlive: true },
      httpsAgent: { maxSockets: options.connections, keepAlive: true },
    },
  });
  // What the SDK wraps around a body breaks with it, and would end the process: nobody listens to it but the socket.
  client.middlewareStack.add(
    (next) => (call) => {
      const { body } = (call.request ?? {}) as { body?: unknown };
      if (body instanceof Readable) body.on('error', () => {});
      return next(call);
    },
    { step: 'finalizeRequest', priority: 'low' },
  );
  return client;
}

/**
 * Objects in an S3-compatible store. A body of known length is one streamed PUT; one that is longer than a PUT may be, or
 * whose length is unknown, goes through lib-storage's Upload, which buffers four parts and cannot be resumed.
 */
export async function openS3(options: S3Options): Promise<Storage> {
  const { bucket } = options;
  const client = connect(options);
  const full = (key: string) => (options.prefix ? `${options.prefix}/${key}` : key);
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
      const [best] = await findProofs(client, target(`${ours}probe-${randomUUID()}`, {}));
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
      .send(new HeadObjectCommand({ Bucket: bucket, Key: full(bucketIdKey) }), {
        abortSignal: AbortSignal.timeout(10_000),
      })
      .then(
        () => true,
        (error) => statusOf(error) !== undefined,
      )
      .finally(() => {
        asking = undefined;
      });
    const { promise: aborted, resolve } = Promise.withResolvers<boolean>();
    const stop = () => resolve(true);
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop, { once: true });
    return Promise.race([asking, aborted]).finally(() => signal?.removeEventListener('abort', stop));
  }

  /** A line that breaks once is the matter of one call; when nothing comes through any more, it is everyone's. */
  async function told(error: unknown, signal?: AbortSignal): Promise<unknown> {
    if (!lost.has(error as object) || (await answers(signal))) return error;
    return new StorageUnavailable(`${name}: the store does not answer`, { cause: error });
  }

  function target(key: string, put: PutOptions): PutObjectCommandInput {
    return {
      Bucket: bucket,
      Key: full(key),
      ContentType: put.contentType ?? 'application/octet-stream',
      ...(put.contentDisposition && { ContentDisposition: put.contentDisposition }),
      ...(put.metadata && { Metadata: put.metadata }),
      ...(options.storageClass && { StorageClass: options.storageClass as never }),
      ...(options.sse && { ServerSideEncryption: options.sse as never }),
      ...(options.sseKmsKeyId && { SSEKMSKeyId: options.sseKmsKeyId }),
    };
  }

  async function write(key: string, body: Readable | Buffer | string, put: PutOptions): Promise<Stored> {
    const length = put.bytes ?? (body instanceof Readable ? undefined : Buffer.byteLength(body));
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
        ...(trailer && { least: leastChunk }),
      });
      // The SDK neither settles nor stays alive when a body breaks under it: the body's end decides, and aborts the call.
      const flowed = flow.flowInto(meter);
      // A stream of no bytes would be sent chunked, which S3 does not take; and bytes at hand the SDK can send again.
      const atHand = body instanceof Readable ? (length === 0 ? '' : undefined) : body;
      if (atHand !== undefined) {
        meter.resume();
        await Promise.race([flowed, broken]);
        breaker.signal.throwIfAborted();
      }
      const answer = inParts
        ? await upload(key, meter, { ...put, trailer }, partBytes, breaker)
        : await client.send(
            new PutObjectCommand({
              ...target(key, put),
              Body: atHand ?? meter,
              ContentLength: length,
              ...(trailer && { ChecksumAlgorithm: trailer }),
            }),
            { abortSignal: breaker.signal },
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
  async function proveStored(
    key: string,
    meter: Meter,
    answer: { ETag?: string | undefined; ChecksumCRC32?: string | undefined },
  ): Promise<string | undefined> {
    // Some answers have an empty one.
    const answered = unquoted(answer.ETag) || undefined;
    const refuse = async (theirs: string, ours: string) => {
      // Unless it is another's by now, or might be.
      const there = await describe(key).catch(() => undefined);
      if (answered && there?.etag === answered) {
        await client.send(new DeleteObjectCommand({ Bucket: bucket, Key: full(key) })).catch(() => {});
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
      const head = await client.send(new HeadObjectCommand({ Bucket: bucket, Key: full(key) }), stoppedBy(signal));
      return { key, bytes: head.ContentLength ?? 0, etag: unquoted(head.ETag), modified: head.LastModified };
    } catch (error) {
      signal?.throwIfAborted();
      // A HEAD has no body to say that it is the bucket that is missing; `check` does.
      if (statusOf(error) === 404) return undefined;
      throw await told(sorted(error, name), signal);
    }
  }

  const of = ({ id, key }: Pick<Upload, 'id' | 'key'>) => ({ Bucket: bucket, Key: full(key), UploadId: id });

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
        throw await told(sorted(error, name), signal);
      }
    } while (after);
    return parts;
  }

  const isKnown = (upload: Upload) =>
    listParts(upload).then(
      (parts) => parts !== undefined,
      () => true,
    );

  // Parts have CRC-32 behind them wherever checksums are kept: it is what is remembered of each, and sums up to the whole's.
  const uploads: Uploads = {
    async begin(key, { signal, ...put }) {
      try {
        const { ContentType, ContentDisposition, Metadata, StorageClass, ServerSideEncryption, SSEKMSKeyId } = target(
          key,
          put,
        );
        const summed = trailers[await howToProve()] !== undefined;
        // Not broken off by the signal: one that is made and not known could not be forgotten.
        const { UploadId } = await client.send(
          new CreateMultipartUploadCommand({
            Bucket: bucket,
            Key: full(key),
            ContentType,
            ContentDisposition,
            Metadata,
            StorageClass,
            ServerSideEncryption,
            SSEKMSKeyId,
            ...(summed && { ChecksumAlgorithm: 'CRC32', ChecksumType: 'FULL_OBJECT' }),
          }),
        );
        if (!UploadId) throw new Error(`store ${key}: the store gave the upload no id`);
        return { id: UploadId, key, bytes: put.bytes, partBytes: partBytesFor(put.bytes) };
      } catch (error) {
        throw await told(sorted(error, name), signal);
      }
    },

    async put(upload, number, body, { signal } = {}) {
      const bytes = partLength(upload, number);
      const flow = openBody(body, signal);
      const { breaker, broken } = flow;
      try {
        breaker.signal.throwIfAborted();
        const prove = await Promise.race([howToProve(), broken]);
        const summed = trailers[prove] !== undefined;
        const meter = new Meter({ expected: bytes, md5: prove === 'md5-etag', ...(summed && { least: leastChunk }) });
        flow.flowInto(meter);
        const answer = await client.send(
          new UploadPartCommand({
            ...of(upload),
            PartNumber: number,
            Body: meter,
            ContentLength: bytes,
            ...(summed && { ChecksumAlgorithm: 'CRC32' }),
          }),
          { abortSignal: breaker.signal },
        );
        if (!meter.whole)
          throw new Error(`store part ${number} of ${upload.key}: answered before it had the whole part`);
        const etag = unquoted(answer.ETag);
        if (!etag) throw new Error(`store part ${number} of ${upload.key}: the store gave it no ETag`);
        if (meter.etag && etag !== meter.etag) {
          throw new Error(
            `store part ${number} of ${upload.key}: the store has ETag ${etag} of a part with ${meter.etag}`,
          );
        }
        return { number, bytes, etag, crc32: meter.checksums().crc32 };
      } catch (error) {
        if (!breaker.signal.aborted) {
          // A store that knows no such upload may hang up before it has read the part.
          // And one that was begun without checksums, under another setting, takes no part with one.
          const other = codeOf(error) === 'InvalidRequest';
          const knows = !isNoUpload(error) && !other && (statusOf(error) !== undefined || (await isKnown(upload)));
          breaker.abort(knows ? sorted(error, name) : lostUpload(upload, error));
        }
        throw await told(breaker.signal.reason, signal);
      } finally {
        flow.close();
      }
    },

    list: (upload, { signal } = {}) => listParts(upload, signal),

    async complete(upload, parts, { signal } = {}) {
      const { key } = upload;
      let doubt: unknown;
      const summed = trailers[await howToProve()] !== undefined;
      const sumOf = (crc32: string) => Buffer.from(crc32, 'hex').toString('base64');
      try {
        // Not broken off by the signal: it would be as good as an answer that got lost.
        await client.send(
          new CompleteMultipartUploadCommand({
            ...of(upload),
            MultipartUpload: {
              Parts: parts.map(({ number, etag, crc32 }) => ({
                PartNumber: number,
                ETag: etag,
                ...(summed && { ChecksumCRC32: sumOf(crc32) }),
              })),
            },
            // The store compares it with what it has put together.
            ...(summed && { ChecksumCRC32: sumOf(crc32Of(parts)), ChecksumType: 'FULL_OBJECT' }),
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
      if (doubt && !(await isKnown(upload))) throw lostUpload(upload, doubt);
      if (doubt) throw await told(sorted(doubt, name), signal);
      throw new Error(
        `store ${key}: the store has ${found ? `${found.bytes} bytes, ETag ${found.etag}` : 'nothing'} of ${upload.bytes} bytes in ${parts.length} parts`,
      );
    },

    async abort(upload) {
      // A part that is under way may still arrive behind the first abort (S3 API, AbortMultipartUpload).
      for (let tries = 0; tries < 10; tries++) {
        await client.send(new AbortMultipartUploadCommand(of(upload))).catch(async (error) => {
          if (!isNoUpload(error)) throw await told(sorted(error, name));
        });
        const left = await listParts(upload);
        if (!left || left.size === 0) return;
        await sleep(200 * tries);
      }
      throw new Error(`store ${upload.key}: the store does not forget upload ${upload.id}`);
    },
  };

  return {
    name,
    put: (key, body, put = {}) => write(key, body, put),
    uploads,
    async get(key, { signal } = {}) {
      try {
        const { Body } = await client.send(new GetObjectCommand({ Bucket: bucket, Key: full(key) }), stoppedBy(signal));
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
      await client.send(new DeleteObjectCommand({ Bucket: bucket, Key: full(key) })).catch(async (error) => {
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
        await client.send(new DeleteObjectCommand({ Bucket: bucket, Key: full(key) }));
      } catch (error) {
        const reason = sorted(error, name);
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
const isMd5OfParts = (etag: string | undefined) => /^[\da-f]{32}-\d+$/.test(etag ?? '');

const stoppedBy = (signal: AbortSignal | undefined) => (signal ? { abortSignal: signal } : {});
const unquoted = (etag: string | undefined) => etag?.replace(/^"|"$/g, '');
export const statusOf = (error: unknown) =>
  (error as { $metadata?: { httpStatusCode?: number } } | undefined)?.$metadata?.httpStatusCode;
export const codeOf = (error: unknown) => {
  const { name, Code, code, message } = (error ?? {}) as {
    name?: string;
    Code?: string;
    code?: string;
    message?: string;
  };
  // The SDK has one name for all that takes too long; this one is about the store, the others may be about a slow body.
  if (name === 'TimeoutError' && message?.includes('did not establish a connection')) return 'ETIMEDOUT';
  return [Code, code, name].find((value) => typeof value === 'string' && value !== 'Error') ?? '';
};
const words: Record<string, string> = {
  NoSuchBucket: 'the bucket does not exist; make it, or correct STORAGE_URL',
  AccessDenied: 'the store denies access; check the credentials and the policy of the bucket',
  AllAccessDisabled: 'the store has disabled access to the bucket',
  AccountProblem: 'the store reports a problem with the account',
  InvalidAccessKeyId: 'the store does not know the access key; check the credentials',
  XAdminUserNotFound: 'the store does not know the access key; check the credentials',
  SignatureDoesNotMatch: 'the store refuses the signature; check the secret key',
  ExpiredToken: 'the credentials have expired',
  InvalidToken: 'the store refuses the session token',
  CredentialsProviderError:
    'no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the host a role',
  RequestTimeTooSkewed: 'the clock of this machine differs too much from that of the store',
  MissingContentLength: 'the store takes no checksum behind a stream; set S3_CHECKSUMS to auto or md5-etag',
  PermanentRedirect: 'the bucket is in another region; correct S3_REGION or S3_ENDPOINT',
  QuotaExceeded: 'the quota of the bucket is used up',
  XMinioStorageFull: 'the store is full',
  ECONNREFUSED: 'the store cannot be reached',
  ENOTFOUND: 'the name of the store cannot be resolved; check S3_ENDPOINT',
  EAI_AGAIN: 'the name of the store cannot be resolved at present',
  ETIMEDOUT: 'the store cannot be reached',
  EHOSTDOWN: 'the store cannot be reached',
  EHOSTUNREACH: 'the store cannot be reached',
  ENETUNREACH: 'the store cannot be reached',
};

/** Errors of calls that got no answer. */
const lost = new WeakSet<object>();

/** What the whole bucket suffers from is told apart from what one object does. */
export function sorted(error: unknown, name: string): unknown {
  const code = codeOf(error);
  const status = statusOf(error);
  const word = words[code] ?? (status === 403 ? words.AccessDenied : status === 507 ? 'the store is full' : undefined);
  if (word) return new StorageUnavailable(`${name}: ${word} (${code || status})`, { cause: error });
  if (code.startsWith('KMS')) {
    return new StorageUnavailable(
      `${name}: the store cannot use the encryption key; check S3_SSE_KMS_KEY_ID (${code})`,
      {
        cause: error,
      },
    );
  }
  if (code === 'EntityTooLarge') return new Rejected(`${name}: the file is larger than the store takes`);
  if (code === 'SlowDown' || code === 'ServiceUnavailable' || status === 503 || status === 429) {
    return new RetryLater(`${name}: the store asked to slow down`, new Date(Date.now() + 2000 + Math.random() * 8000), {
      cause: error,
    });
  }
  if (status !== undefined && status >= 500) {
    // An object that is refused for good is told by its reason; a store that is unwell makes all of them wait.
    return new RetryLater(
      `${name}: the store answered ${status}`,
      new Date(Date.now() + 5000 + Math.random() * 10_000),
      {
        cause: error,
      },
    );
  }
  if (status === undefined && /^(E[A-Z]+|HPE_\w+|TimeoutError)$/.test(code)) lost.add(error as object);
  return error;
}
