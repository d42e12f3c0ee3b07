import { createHash, randomUUID } from 'node:crypto';
import { pipeline, Readable } from 'node:stream';
import {
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type PutObjectCommandInput,
  S3Client,
} from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import { RetryLater, StorageUnavailable } from '../errors.ts';
import { Meter } from './meter.ts';
import type { PutOptions, Storage, Stored, StoredObject } from './storage.ts';

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
}

/** The largest body of one PUT (S3 user guide, "Uploading objects"). */
const largestPut = 5 * 2 ** 30;
const mostParts = 10_000;

/**
 * Objects in an S3-compatible store. A body of known length is one streamed PUT; one that is longer than a PUT may be, or
 * whose length is unknown, goes through lib-storage's Upload, which buffers four parts and cannot be resumed.
 */
export async function openS3(options: S3Options): Promise<Storage> {
  const { bucket } = options;
  const client = new S3Client({
    // With an endpoint of its own a store rarely has regions; without one the SDK looks where it always does.
    ...((options.region || options.endpoint) && { region: options.region ?? 'us-east-1' }),
    ...(options.endpoint && { endpoint: options.endpoint }),
    forcePathStyle: options.forcePathStyle,
    // Older stores refuse a streamed body with the trailing checksums that the SDK adds by itself.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: {
      connectionTimeout: 10_000,
      socketTimeout: 120_000,
      httpAgent: { maxSockets: options.connections, keepAlive: true },
      httpsAgent: { maxSockets: options.connections, keepAlive: true },
    },
  });
  const full = (key: string) => (options.prefix ? `${options.prefix}/${key}` : key);
  const own = (key: string) => (options.prefix ? key.slice(options.prefix.length + 1) : key);
  const name = `s3://${bucket}${options.prefix && `/${options.prefix}`}`;

  /** Whether an ETag is the body's MD5, found out once with a small object; it is not with some kinds of encryption. */
  let proof: Promise<'md5-etag' | 'none' | 'crc32' | 'crc64nvme'> | undefined;
  async function howToProve() {
    if (options.checksums !== 'auto') return options.checksums;
    proof ??= (async () => {
      const key = `_mirror/probe-${randomUUID()}`;
      const content = Buffer.from(`probe ${randomUUID()}`);
      const { ETag } = await client.send(
        new PutObjectCommand({ ...target(key, {}), Body: content, ContentLength: content.length }),
      );
      await client.send(new DeleteObjectCommand({ Bucket: bucket, Key: full(key) }));
      return unquoted(ETag) === createHash('md5').update(content).digest('hex') ? 'md5-etag' : 'none';
    })();
    try {
      return await proof;
    } catch (error) {
      proof = undefined;
      throw sorted(error, name);
    }
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
    const source = body instanceof Readable ? body : Readable.from([Buffer.from(body)], { objectMode: false });
    source.on('error', () => {});
    const length = body instanceof Readable ? put.bytes : Buffer.byteLength(body);
    const aborter = new AbortController();
    try {
      put.signal?.throwIfAborted();
      const prove = await howToProve();
      const meter = new Meter({ expected: length, md5: prove === 'md5-etag' });
      // The SDK neither settles nor stays alive when a body breaks under it: the body's end decides, and aborts the call.
      const broken = new Promise<never>((_, reject) => {
        pipeline(source, meter, (error) => {
          if (!error) return;
          reject(error);
          aborter.abort(error);
        });
      });
      broken.catch(() => {});
      const onAbort = () => meter.destroy(abortReason(put.signal!));
      put.signal?.addEventListener('abort', onAbort, { once: true });
      try {
        const sent =
          length !== undefined && length <= largestPut
            ? client.send(
                new PutObjectCommand({
                  ...target(key, put),
                  // A stream of no bytes would be sent chunked, which S3 does not take.
                  Body: length === 0 ? '' : meter,
                  ContentLength: length,
                  ...(prove === 'crc32' && { ChecksumAlgorithm: 'CRC32' as const }),
                  ...(prove === 'crc64nvme' && { ChecksumAlgorithm: 'CRC64NVME' as const }),
                }),
                { abortSignal: aborter.signal },
              )
            : upload(key, meter, put, length, aborter);
        if (length === 0) meter.resume();
        sent.catch(() => {});
        const answer = await Promise.race([sent, broken]);
        // With a length the store may answer before the source has ended; only its end says that nothing came behind.
        if (!meter.readableEnded) await Promise.race([ended(meter), broken]);
        const checksums = meter.checksums();
        await proveStored(
          key,
          meter.passed,
          checksums,
          answer,
          length === undefined || length > largestPut ? 'none' : prove,
        );
        return { key, bytes: meter.passed, etag: unquoted(answer.ETag), checksums };
      } finally {
        put.signal?.removeEventListener('abort', onAbort);
      }
    } catch (error) {
      throw sorted(error, name);
    } finally {
      source.destroy();
    }
  }

  async function upload(
    key: string,
    body: Readable,
    put: PutOptions,
    length: number | undefined,
    aborter: AbortController,
  ) {
    const transfer = new Upload({
      client,
      params: { ...target(key, put), Body: body },
      queueSize: 4,
      partSize: Math.max(16 * 2 ** 20, Math.ceil((length ?? 0) / mostParts)),
      leavePartsOnError: false,
      abortController: aborter,
    });
    return transfer.done();
  }

  /** Compares what the store says it has with what was sent. */
  async function proveStored(
    key: string,
    bytes: number,
    checksums: { crc32: string; md5?: string },
    answer: { ETag?: string | undefined; ChecksumCRC32?: string | undefined },
    prove: 'md5-etag' | 'crc32' | 'crc64nvme' | 'none',
  ): Promise<void> {
    if (prove === 'md5-etag') {
      if (unquoted(answer.ETag) === checksums.md5) return;
      throw new Error(`store ${key}: the store has ETag ${unquoted(answer.ETag)} for a body with MD5 ${checksums.md5}`);
    }
    if (prove === 'crc32' && answer.ChecksumCRC32) {
      const theirs = Buffer.from(answer.ChecksumCRC32, 'base64').toString('hex');
      if (theirs === checksums.crc32) return;
      throw new Error(`store ${key}: the store has CRC-32 ${theirs} for a body with ${checksums.crc32}`);
    }
    const found = await describe(key);
    if (found?.bytes !== bytes)
      throw new Error(`store ${key}: the store has ${found?.bytes ?? 'no'} bytes of ${bytes}`);
  }

  async function describe(key: string): Promise<StoredObject | undefined> {
    try {
      const head = await client.send(new HeadObjectCommand({ Bucket: bucket, Key: full(key) }));
      return { key, bytes: head.ContentLength ?? 0, etag: unquoted(head.ETag), modified: head.LastModified };
    } catch (error) {
      // A HEAD has no body to say that it is the bucket that is missing; `check` does.
      if (statusOf(error) === 404) return undefined;
      throw sorted(error, name);
    }
  }

  return {
    name,
    put: (key, body, put = {}) => write(key, body, put),
    async get(key, { signal } = {}) {
      try {
        const { Body } = await client.send(new GetObjectCommand({ Bucket: bucket, Key: full(key) }), {
          ...(signal && { abortSignal: signal }),
        });
        return Body as Readable;
      } catch (error) {
        if (codeOf(error) === 'NoSuchKey') return undefined;
        throw sorted(error, name);
      }
    },
    head: describe,
    async *list(prefix) {
      let after: string | undefined;
      do {
        const page = await client
          .send(new ListObjectsV2Command({ Bucket: bucket, Prefix: full(prefix), ContinuationToken: after }))
          .catch((error) => {
            throw sorted(error, name);
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
      await client.send(new DeleteObjectCommand({ Bucket: bucket, Key: full(key) })).catch((error) => {
        throw sorted(error, name);
      });
    },
    async check() {
      const key = `_mirror/probe-${randomUUID()}`;
      try {
        await client.send(new PutObjectCommand({ ...target(key, {}), Body: 'probe', ContentLength: 5 }));
        await client.send(new DeleteObjectCommand({ Bucket: bucket, Key: full(key) }));
      } catch (error) {
        throw sorted(error, name);
      }
    },
    async close() {
      client.destroy();
    },
  };
}

const ended = (stream: Readable) => new Promise<void>((resolve) => stream.once('end', resolve));
const unquoted = (etag: string | undefined) => etag?.replace(/^"|"$/g, '');
const statusOf = (error: unknown) =>
  (error as { $metadata?: { httpStatusCode?: number } } | undefined)?.$metadata?.httpStatusCode;
const codeOf = (error: unknown) => {
  const { name, Code, code } = (error ?? {}) as { name?: string; Code?: string; code?: string };
  return [Code, code, name].find((value) => typeof value === 'string' && value !== 'Error') ?? '';
};
const abortReason = (signal: AbortSignal) =>
  signal.reason instanceof Error ? signal.reason : new Error('aborted', { cause: signal.reason });

const words: Record<string, string> = {
  NoSuchBucket: 'the bucket does not exist; make it, or correct STORAGE_URL',
  AccessDenied: 'the store denies access; check the credentials and the policy of the bucket',
  AllAccessDisabled: 'the store has disabled access to the bucket',
  AccountProblem: 'the store reports a problem with the account',
  InvalidAccessKeyId: 'the store does not know the access key; check the credentials',
  SignatureDoesNotMatch: 'the store refuses the signature; check the secret key',
  ExpiredToken: 'the credentials have expired',
  InvalidToken: 'the store refuses the session token',
  CredentialsProviderError:
    'no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the host a role',
  RequestTimeTooSkewed: 'the clock of this machine differs too much from that of the store',
  PermanentRedirect: 'the bucket is in another region; correct S3_REGION or S3_ENDPOINT',
  QuotaExceeded: 'the quota of the bucket is used up',
  XMinioStorageFull: 'the store is full',
  ECONNREFUSED: 'the store cannot be reached',
  ENOTFOUND: 'the name of the store cannot be resolved; check S3_ENDPOINT',
  EAI_AGAIN: 'the name of the store cannot be resolved at present',
  EHOSTUNREACH: 'the store cannot be reached',
  ENETUNREACH: 'the store cannot be reached',
};

/** What the whole bucket suffers from is told apart from what one object does. */
function sorted(error: unknown, name: string): unknown {
  const code = codeOf(error);
  const status = statusOf(error);
  const word = words[code] ?? (status === 403 ? words.AccessDenied : status === 507 ? 'the store is full' : undefined);
  if (word) return new StorageUnavailable(`${name}: ${word} (${code || status})`, { cause: error });
  if (code === 'SlowDown' || code === 'ServiceUnavailable' || status === 503 || status === 429) {
    return new RetryLater(`${name}: the store asked to slow down`, new Date(Date.now() + 2000 + Math.random() * 8000), {
      cause: error,
    });
  }
  return error;
}
