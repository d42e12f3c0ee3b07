import { randomUUID } from 'node:crypto';
import {
  GetBucketVersioningCommand,
  HeadObjectCommand,
  type HeadObjectCommandOutput,
  type S3Client,
} from '@aws-sdk/client-s3';
import { StorageUnavailable } from '../../floor/errors.ts';
import { recent } from '../../floor/recent.ts';
import { unlessAborted } from '../abort.ts';
import { bucketIdKey } from '../keys.ts';
import type { PutOptions, StoredObject } from '../storage.ts';
import { type ChecksumMethod, checksumMethods, findMethods, probeKey, removeProbes } from './checksum-support.ts';
import { agentsTo, connect, memoryKeyOf, type S3Options, stoppedBy, unquoted, writeSettings } from './client.ts';
import { classify, gotNoAnswer, isUnsupported, statusOf } from './errors.ts';
import { createSender, type Send } from './send.ts';

/** A header may contain printable ASCII only (RFC 9110, section 8.3.1), but the library may send any text as a content type. */
const isType = (contentType: string) => /^[\x20-\x7e]{1,255}$/.test(contentType);

/** Classes whose objects cannot be read without a restore (S3 user guide, "Understanding archival storage classes"). */
const archives = ['GLACIER', 'DEEP_ARCHIVE'];

/** `Restore` and `ArchiveStatus` are only in the answer to a HEAD. */
export function isArchived(
  object: Pick<HeadObjectCommandOutput, 'StorageClass' | 'ArchiveStatus' | 'Restore'>,
): boolean {
  if (object.Restore?.includes('ongoing-request="false"')) return false;
  return object.ArchiveStatus !== undefined || archives.includes(object.StorageClass ?? '');
}

/** A bucket, or a prefix in it: its address, how what it stores is verified, and how its errors are classified. */
export class Bucket {
  readonly options: S3Options;
  readonly name: string;
  readonly client: S3Client;
  readonly send: Send;
  /** Whether the bucket never had versions. False if the store does not say. */
  readonly hasNoVersions = recent(() => this.#hasNoVersions());
  #method: Promise<ChecksumMethod> | undefined;
  #answering: Promise<boolean> | undefined;

  constructor(options: S3Options) {
    this.options = options;
    this.name = `s3://${options.bucket}${options.prefix && `/${options.prefix}`}`;
    const agents = agentsTo(options);
    this.client = connect(options, agents);
    this.send = createSender(this.client, agents, options);
  }

  /** The key in the bucket: with the prefix. */
  full(key: string): string {
    return this.options.prefix ? `${this.options.prefix}/${key}` : key;
  }

  /** The reverse of `full`. */
  own(key: string): string {
    return this.options.prefix ? key.slice(this.options.prefix.length + 1) : key;
  }

  at(key: string): { Bucket: string; Key: string } {
    return { Bucket: this.options.bucket, Key: this.full(key) };
  }

  /** The key with content type, metadata and the settings for writes. */
  target(key: string, put: PutOptions) {
    return {
      ...this.at(key),
      ContentType: put.contentType && isType(put.contentType) ? put.contentType : 'application/octet-stream',
      ...(put.contentDisposition && { ContentDisposition: put.contentDisposition }),
      ...(put.metadata && { Metadata: put.metadata }),
      ...writeSettings(this.options, put.media === true),
    };
  }

  async checksumMethod(): Promise<ChecksumMethod> {
    const { checksums, contentHash } = this.options;
    const method = checksums === 'auto' ? await this.#bestMethod() : checksums;
    // Without content hashes, no SHA-256 is computed.
    return method === 'sha256' && !contentHash ? 'crc32' : method;
  }

  /** Detected once with small objects, unless it is remembered. */
  async #bestMethod(): Promise<ChecksumMethod> {
    this.#method ??= this.#recallMethod();
    try {
      return await this.#method;
    } catch (error) {
      this.#method = undefined;
      throw classify(error, this.name);
    }
  }

  async #recallMethod(): Promise<ChecksumMethod> {
    const { memory } = this.options;
    const store = memoryKeyOf(this.options);
    const remembered = await memory?.recall(store).catch(() => undefined);
    const known = checksumMethods.find((each) => each === remembered);
    if (known) return known;
    const probe = { content: Buffer.from(`probe ${randomUUID()}`), written: new Set<string | undefined>() };
    try {
      const { value: best } = await findMethods(this.client, this.send, this.target(probeKey, {}), probe).next();
      await memory?.keep(store, best!).catch(() => {});
      return best!;
    } finally {
      await removeProbes(this.client, this.at(probeKey), probe.written);
    }
  }

  async #hasNoVersions(): Promise<boolean> {
    const command = new GetBucketVersioningCommand({ Bucket: this.options.bucket });
    return this.client.send(command).then(({ Status }) => Status === undefined, isUnsupported);
  }

  /** Undefined: there is no such object. */
  async describe(key: string, signal?: AbortSignal, VersionId?: string): Promise<StoredObject | undefined> {
    try {
      const head = await this.client.send(new HeadObjectCommand({ ...this.at(key), VersionId }), stoppedBy(signal));
      const { ContentLength: bytes = 0, ETag, LastModified: modified, VersionId: versionId } = head;
      const archived = isArchived(head) && { archived: true as const };
      return { key, bytes, etag: unquoted(ETag), modified, ...(versionId && { versionId }), ...archived };
    } catch (error) {
      // The answer to a HEAD has no body that would name a missing bucket; `check` finds that.
      if (statusOf(error) === 404) return undefined;
      throw await this.failure(error, signal);
    }
  }

  /**
   * The error to throw in place of `error`; after an abort, its reason. An error without an answer makes the store unavailable only
   * if the store does not answer another request either.
   */
  async failure(error: unknown, signal?: AbortSignal): Promise<unknown> {
    if (signal?.aborted) return signal.reason;
    const classified = classify(error, this.name);
    if (!gotNoAnswer(classified) || (await this.#answers(signal))) return classified;
    return new StorageUnavailable(`${this.name}: the store does not answer`, { cause: error });
  }

  /** Whether the store answers at all, with any status. Callers at the same time share one request. */
  async #answers(signal: AbortSignal | undefined): Promise<boolean> {
    this.#answering ??= this.client
      .send(new HeadObjectCommand(this.at(bucketIdKey)), { abortSignal: AbortSignal.timeout(10_000) })
      .then(
        () => true,
        (error) => statusOf(error) !== undefined,
      )
      .finally(() => {
        this.#answering = undefined;
      });
    return unlessAborted(this.#answering, signal).catch(() => true);
  }
}
