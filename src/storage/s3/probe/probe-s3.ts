import { randomUUID } from 'node:crypto';
import {
  GetBucketVersioningCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  ListObjectVersionsCommand,
} from '@aws-sdk/client-s3';
import { clockFinding, type Finding } from '../../../floor/finding.ts';
import { mirrorIdFinding, note, ok, wrong } from '../../findings.ts';
import { bucketIdKey } from '../../keys.ts';
import { smallestPart } from '../../storage.ts';
import {
  algorithmFor,
  type ChecksumMethod,
  findMethods,
  probeKey,
  removeProbes,
  uploadChecksums,
} from '../checksum-support.ts';
import { memoryKeyOf, type S3Options } from '../client.ts';
import { codeOf, isUnsupported, statusOf } from '../errors.ts';
import { lifecycle } from './lifecycle.ts';
import { objectLock } from './probe-object-lock.ts';
import { canAbortUploads, openUploads, parts, storageClass } from './probe-uploads.ts';
import { ProbedBucket } from './probed-bucket.ts';

/**
 * Checks what an S3 store can do and how its bucket is set up. The probe removes every object that it writes, also after an
 * error. If versions cannot be removed, one small object stays, and a finding says so. `knownId`: see `mirrorIdFinding`.
 */
export async function* probeS3(options: S3Options, knownId?: string | null): AsyncGenerator<Finding> {
  const bucket = new ProbedBucket(options);
  try {
    // One after the other: if an early one fails, the later ones would fail too.
    const list = await listing(bucket);
    if (list) yield list.finding;
    if (list?.ends) return;
    yield* attempt(bucket, versioning, note, 'versions', 's3:GetBucketVersioning');
    const needs = options.objectLock ? ' and s3:PutObjectRetention' : '';
    const level = options.objectLock ? wrong : note;
    yield* attempt(bucket, objectLock, level, 'object lock', `s3:GetBucketObjectLockConfiguration${needs}`);
    try {
      yield* await objects(bucket);
    } catch (error) {
      yield failure(bucket, 'objects', error, 'allow s3:PutObject, s3:GetObject and s3:DeleteObject');
      return;
    }
    yield await mirrorId(bucket, knownId);
    yield* attempt(bucket, parts, wrong, 'parts', 's3:PutObject and s3:ListMultipartUploadParts');
    yield* attempt(bucket, storageClass, wrong, 'storage class', 's3:PutObject with this storage class');
    yield* attempt(bucket, canAbortUploads, wrong, 'abort uploads', 's3:AbortMultipartUpload');
    yield* attempt(bucket, openUploads, note, 'open uploads', 's3:ListBucketMultipartUploads');
    yield* attempt(bucket, lifecycle, note, 'lifecycle', 's3:GetLifecycleConfiguration');
    if (bucket.behindMs !== undefined) yield clockFinding('bucket', bucket.behindMs, 'the store');
    const left = await bucket.cleanUp();
    if (left > 0) {
      const found = `${left} ${left === 1 ? 'version' : 'versions'} of ${bucket.full(probeKey)}`;
      yield note('left behind', found, 'allow s3:DeleteObjectVersion on it, unless the bucket locks its versions');
    }
  } finally {
    await bucket.cleanUp();
    bucket.client.destroy();
  }
}

/** The findings of one function, or a finding of this level about its error. */
async function* attempt(
  bucket: ProbedBucket,
  probe: (bucket: ProbedBucket) => Promise<Finding[]>,
  level: typeof note,
  what: string,
  permission: string,
): AsyncGenerator<Finding> {
  try {
    yield* await probe(bucket);
  } catch (error) {
    if (isUnsupported(error)) {
      yield level === note
        ? note(what, 'the store does not say')
        : wrong(what, `the store has no multipart uploads (${codeOf(error) || statusOf(error)})`, noMultipart);
      return;
    }
    const { found, remedy } = bucket.explain(error);
    yield level(what, found, statusOf(error) === 403 ? `allow ${permission}` : remedy);
  }
}

const noMultipart = 'files of more than 32 MiB cannot be mirrored: use a store with multipart uploads';

/** The first requests are also answered 403 if the access keys are wrong. AccessDenied means a missing permission. */
const isDenied = (error: unknown) => statusOf(error) === 403 && codeOf(error) === 'AccessDenied';

function failure(bucket: ProbedBucket, what: string, error: unknown, whenDenied: string): Finding {
  const { found, remedy } = bucket.explain(error);
  return wrong(what, found, isDenied(error) ? whenDenied : remedy);
}

/** Undefined if the bucket can be listed. `ends`: nothing else can work, either. */
async function listing(bucket: ProbedBucket): Promise<{ finding: Finding; ends: boolean } | undefined> {
  const { Bucket, Key: Prefix } = bucket.probe;
  try {
    await bucket.client.send(new ListObjectsV2Command({ Bucket, Prefix, MaxKeys: 1 }));
    return undefined;
  } catch (error) {
    const finding = failure(bucket, 'list', error, 'allow s3:ListBucket on the bucket, or correct the keys');
    return { finding, ends: !isDenied(error) };
  }
}

async function versioning(bucket: ProbedBucket): Promise<Finding[]> {
  const { Status } = await bucket.client.send(new GetBucketVersioningCommand({ Bucket: bucket.options.bucket }));
  if (Status === 'Enabled') {
    const found = 'on: replaced and removed objects stay as older versions, and cost storage';
    return [(await canListVersions(bucket)) ? ok('versions', found) : note('versions', found, toRemove)];
  }
  bucket.versionsStay = false;
  return [ok('versions', 'off: replaced and removed objects are gone')];
}

const toRemove = 'to remove assets on purpose, allow s3:ListBucketVersions on the bucket';

const canListVersions = ({ client, probe }: ProbedBucket) =>
  client.send(new ListObjectVersionsCommand({ Bucket: probe.Bucket, Prefix: probe.Key, MaxKeys: 1 })).then(
    () => true,
    (error) => statusOf(error) !== 403,
  );

/** Writes an object with each checksum method, and reads the first one back. */
async function objects(bucket: ProbedBucket): Promise<Finding[]> {
  const { client, probe, send, written } = bucket;
  const content = Buffer.from(`probe ${randomUUID()}`);
  const found: ChecksumMethod[] = [];
  for await (const method of findMethods(client, send, bucket.target(probeKey, {}), { content, written })) {
    found.push(method);
    if (found.length === 1) {
      const { Body } = await client.send(new GetObjectCommand(probe));
      if (!Buffer.from(await Body!.transformToByteArray()).equals(content)) {
        const remedy = 'check for a proxy or a cache in front of the store';
        return [wrong('objects', 'the bytes that were read differ from those that were written', remedy)];
      }
      bucket.versionsStay ??= (await removeProbes(client, probe, written)) > 0;
    }
    if (bucket.versionsStay) break;
  }
  const algorithm = algorithmFor(found[0]!, smallestPart);
  bucket.checksum = algorithm && uploadChecksums[algorithm];
  return [ok('objects', 'are written, listed and read back'), await checksums(bucket, found)];
}

const methodNames: Record<ChecksumMethod, string> = {
  sha256: 'SHA-256',
  crc32: 'CRC-32',
  'md5-etag': 'MD5 as ETag',
  none: 'none that can be compared',
};

async function checksums({ options, versionsStay }: ProbedBucket, methods: ChecksumMethod[]): Promise<Finding> {
  const best = methods[0]!;
  const named = best === 'none' ? methods : methods.filter((method) => method !== 'none');
  const found = named.map((method) => methodNames[method]).join(', ');
  if (options.checksums === 'auto') {
    await options.memory?.keep(memoryKeyOf(options), best).catch(() => {});
    if (best !== 'none') return ok('checksums', found, best);
    return { ...note('checksums', found, 'use a store that keeps checksums'), chosen: 'none' };
  }
  // Where versions stay, only the best method was tried.
  if (methods.includes(options.checksums) || versionsStay) return ok('checksums', found, options.checksums);
  const remedy = `S3_CHECKSUMS is ${options.checksums}, which the store does not support; set it to auto`;
  return wrong('checksums', found, remedy);
}

async function mirrorId(bucket: ProbedBucket, knownId: string | null | undefined): Promise<Finding> {
  const found = await bucket.client
    .send(new GetObjectCommand(bucket.at(bucketIdKey)))
    .then(({ Body }) => Body!.transformToString())
    .catch(() => undefined);
  return mirrorIdFinding(found?.trim(), knownId);
}
