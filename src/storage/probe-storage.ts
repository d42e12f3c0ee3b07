import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { stat, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  GetBucketLifecycleConfigurationCommand,
  GetBucketVersioningCommand,
  GetObjectCommand,
  GetObjectLockConfigurationCommand,
  type LifecycleRule,
  ListObjectsV2Command,
  ListPartsCommand,
  PutObjectCommand,
  type PutObjectCommandInput,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { reasonOf } from '../errors.ts';
import { exists } from '../files.ts';
import { clockFinding, type Finding, findingsOn, told } from '../finding.ts';
import { formatBytes } from '../units.ts';
import { openDirectory } from './directory/directory.ts';
import { ignoresCase } from './directory/letter-case.ts';
import { bucketIdKey } from './keys.ts';
import { algorithmOf, findProofs, type Proof, probeKey, removeProbes } from './s3/checksum-support.ts';
import { agentsTo, connect, placeOf, type S3Options, writeSettings } from './s3/client.ts';
import { classify, codeOf, isUnsupported, statusOf } from './s3/errors.ts';
import { createSender } from './s3/send.ts';
import { listUploads } from './s3/sweep.ts';

const area = 'bucket' as const;
const { ok, not } = findingsOn(area);

/**
 * What an S3 store can do and how its bucket is set up. What is written for it is removed again, whatever happens. Where
 * versions cannot be removed one small object is written, and a finding says that it stays.
 */
export async function* probeS3(options: S3Options, knownId?: string | null): AsyncGenerator<Finding> {
  const agents = agentsTo(options);
  const client = connect(options, agents);
  const { bucket, prefix } = options;
  const name = `s3://${bucket}${prefix && `/${prefix}`}`;
  const full = (key: string) => (prefix ? `${prefix}/${key}` : key);
  const at = { Bucket: bucket, Key: full(probeKey) };
  const target: PutObjectCommandInput = {
    ...at,
    ContentType: 'application/octet-stream',
    ...writeSettings(options),
  };
  const versions = new Set<string | undefined>();
  const uploads = new Set<string>();
  /** Whether each version that is written stays: it is locked, or may not be removed. Undefined until that is known. */
  let stays: boolean | undefined;
  /** What a PUT has to carry for the store to take it, and to compare it. */
  let checksum: { ChecksumAlgorithm?: 'CRC32' | 'CRC64NVME' } = {};
  let behindMs: number | undefined;
  client.middlewareStack.add(
    (next) => async (call) => {
      const sent = Date.now();
      const result = await next(call);
      const { headers } = (result.response ?? {}) as { headers?: Record<string, string> };
      const theirs = Date.parse(headers?.date ?? '');
      // Their second has begun anywhere between.
      if (!Number.isNaN(theirs)) behindMs = theirs + 500 - (sent + Date.now()) / 2;
      return result;
    },
    { step: 'deserialize', priority: 'high' },
  );
  const saying = (error: unknown) => told(reasonOf(classify(error, name)).replace(`${name}: `, ''));

  try {
    // One after the other: what the first cannot do, none of the others can.
    try {
      await client.send(new ListObjectsV2Command({ Bucket: bucket, Prefix: full(probeKey), MaxKeys: 1 }));
    } catch (error) {
      const { found, remedy } = saying(error);
      const denied = statusOf(error) === 403 && codeOf(error) === 'AccessDenied';
      yield not('wrong', 'list', found, denied ? 'allow s3:ListBucket on the bucket, or correct the keys' : remedy);
      if (!denied) return;
    }
    yield* attempt('versions', versioning, 'allow s3:GetBucketVersioning to have it looked at', 'note');
    yield* attempt('object lock', objectLock, 'allow s3:GetBucketObjectLockConfiguration to have it looked at', 'note');
    try {
      yield* objects();
    } catch (error) {
      const { found, remedy } = saying(error);
      const denied = statusOf(error) === 403 && codeOf(error) === 'AccessDenied';
      yield not('wrong', 'objects', found, denied ? 'allow s3:PutObject, s3:GetObject and s3:DeleteObject' : remedy);
      return;
    }
    yield* identity();
    if (!stays) yield* attempt('conditions', conditions);
    yield* attempt('parts', parts, 'allow s3:PutObject and s3:ListMultipartUploadParts');
    yield* attempt('give up', giveUp, 'allow s3:AbortMultipartUpload');
    yield* attempt('open uploads', openUploads, 'allow s3:ListBucketMultipartUploads', 'note');
    yield* attempt('lifecycle', lifecycle, 'allow s3:GetLifecycleConfiguration to have it looked at', 'note');
    if (behindMs !== undefined) yield clockFinding(area, behindMs, 'the store');
    yield* cleanUp();
  } finally {
    await Array.fromAsync(cleanUp());
    client.destroy();
  }

  async function* attempt(
    what: string,
    probe: () => Promise<Finding[]>,
    whenDenied?: string,
    level: 'note' | 'wrong' = 'wrong',
  ): AsyncGenerator<Finding> {
    try {
      yield* await probe();
    } catch (error) {
      const { found, remedy } = saying(error);
      if (!isUnsupported(error))
        yield not(level, what, found, statusOf(error) === 403 && whenDenied ? whenDenied : remedy);
      else if (level === 'note') yield not('note', what, 'the store does not tell');
      else {
        const word = codeOf(error) || statusOf(error);
        yield not('wrong', what, `the store has no multipart uploads (${word})`, noMultipart);
      }
    }
  }

  async function* identity(): AsyncGenerator<Finding> {
    const found = await client
      .send(new GetObjectCommand({ Bucket: bucket, Key: full(bucketIdKey) }))
      .then(({ Body }) => Body!.transformToString())
      .catch(() => undefined);
    yield identityFinding(found?.trim(), knownId);
  }

  async function* cleanUp(): AsyncGenerator<Finding> {
    for (const UploadId of uploads) {
      await client.send(new AbortMultipartUploadCommand({ ...at, UploadId })).catch(() => {});
      uploads.delete(UploadId);
    }
    const left = await removeProbes(client, at, versions);
    versions.clear();
    if (left === 0) return;
    const found = `${left} ${left === 1 ? 'version' : 'versions'} of ${full(probeKey)}`;
    yield not('note', 'left behind', found, 'allow s3:DeleteObjectVersion on it, unless the bucket locks its versions');
  }

  /** Objects are written in each way that proves what is stored: this finds out which there are, and reads the first back. */
  async function* objects(): AsyncGenerator<Finding> {
    const content = Buffer.from(`probe ${randomUUID()}`);
    const all: Proof[] = [];
    for await (const proof of findProofs(client, createSender(client, agents, options), target, {
      content,
      written: versions,
    })) {
      all.push(proof);
      if (all.length === 1) {
        const { Body: back } = await client.send(new GetObjectCommand(at));
        if (!Buffer.from(await back!.transformToByteArray()).equals(content)) {
          const remedy = 'what stands between here and the store?';
          yield not('wrong', 'objects', 'what is read back is not what was written', remedy);
          return;
        }
        stays ??= (await removeProbes(client, at, versions)) > 0;
      }
      if (stays) break;
    }
    const ChecksumAlgorithm = algorithmOf(all[0]!);
    checksum = ChecksumAlgorithm ? { ChecksumAlgorithm } : {};
    yield ok('objects', 'are written, listed and read back');
    yield* await checksums(all);
  }

  async function checksums(all: Proof[]): Promise<Finding[]> {
    const words: Record<Proof, string> = {
      crc32: 'CRC-32',
      crc64nvme: 'CRC-64/NVME',
      'md5-etag': 'MD5 as ETag',
      none: 'the length only',
    };
    const found =
      all[0] === 'none'
        ? 'none that can be compared'
        : all
            .filter((p) => p !== 'none')
            .map((p) => words[p])
            .join(', ');
    if (options.checksums === 'auto') {
      await options.memory?.keep(placeOf(options), all[0]!).catch(() => {});
      if (all[0] === 'none') {
        return [{ ...not('note', 'checksums', found, 'a store that keeps checksums proves more'), chosen: 'none' }];
      }
      return [ok('checksums', found, all[0])];
    }
    // Where versions stay only the best is known.
    if (all.includes(options.checksums) || stays) return [ok('checksums', found, options.checksums)];
    const remedy = `S3_CHECKSUMS is ${options.checksums}, which the store does not know; set it to auto`;
    return [not('wrong', 'checksums', found, remedy)];
  }

  async function conditions(): Promise<Finding[]> {
    const first = await client.send(new PutObjectCommand({ ...target, ...checksum, Body: 'first' }));
    versions.add(first.VersionId);
    const again = await client
      .send(new PutObjectCommand({ ...target, ...checksum, Body: 'again', IfNoneMatch: '*' }))
      .then(
        (answer) => {
          versions.add(answer.VersionId);
          return 'ignored; nothing here rests on them';
        },
        (error) => {
          if (statusOf(error) === 412 || statusOf(error) === 409) return 'a PUT that must not overwrite is refused';
          if (statusOf(error) === 403) throw error;
          return 'not known to the store; nothing here rests on them';
        },
      );
    return [ok('conditions', again)];
  }

  async function beginUpload(): Promise<string> {
    const full = 'ChecksumAlgorithm' in checksum && { ChecksumType: 'FULL_OBJECT' as const };
    const begun = await client.send(
      new CreateMultipartUploadCommand({ ...(target as object), ...at, ...checksum, ...full }),
    );
    uploads.add(begun.UploadId!);
    return begun.UploadId!;
  }

  /** One upload of parts of these lengths; `listed` is undefined where the store cannot list parts. */
  async function upload(lengths: number[]): Promise<{ listed: boolean | undefined; bytes: number | undefined }> {
    const UploadId = await beginUpload();
    const Parts: CompletedPart[] = [];
    for (const [index, length] of lengths.entries()) {
      const part = {
        ...at,
        ...checksum,
        UploadId,
        PartNumber: index + 1,
        Body: Buffer.alloc(length),
        ContentLength: length,
      };
      const { ETag, ChecksumCRC32, ChecksumCRC64NVME } = await client.send(new UploadPartCommand(part));
      Parts.push({ PartNumber: index + 1, ETag, ChecksumCRC32, ChecksumCRC64NVME });
    }
    const page = await client.send(new ListPartsCommand({ ...at, UploadId })).catch(unlessUnsupported);
    const listed = page && lengths.every((length, index) => page.Parts?.[index]?.Size === length);
    if (stays) return { listed, bytes: undefined };
    const done = await client.send(new CompleteMultipartUploadCommand({ ...at, UploadId, MultipartUpload: { Parts } }));
    uploads.delete(UploadId);
    versions.add(done.VersionId);
    const { ContentLength } = await client.send(new GetObjectCommand({ ...at, Range: 'bytes=0-0' })).then((answer) => {
      answer.Body?.transformToByteArray().catch(() => {});
      const total = /\/(\d+)$/.exec(answer.ContentRange ?? '')?.[1];
      return { ContentLength: total === undefined ? answer.ContentLength : Number(total) };
    });
    return { listed, bytes: ContentLength };
  }

  async function parts(): Promise<Finding[]> {
    if (stays) {
      const { listed } = await upload([1]);
      return [partsFinding('are taken; no object is made of them here, for it would stay', listed)];
    }
    const least = 5 * 2 ** 20;
    const equal = [least, least, 1];
    const total = (lengths: number[]) => lengths.reduce((sum, length) => sum + length, 0);
    const unequal = [least, least + 1, 1];
    const first = await upload(unequal).catch((error) => {
      if (statusOf(error) === 403 || isUnsupported(error)) throw error;
      return undefined;
    });
    const lengths = first ? unequal : equal;
    const { listed, bytes } = first ?? (await upload(equal));
    if (bytes !== total(lengths)) {
      return [
        not('wrong', 'parts', `of ${total(lengths)} bytes in parts the store has ${bytes}`, 'is this an S3 store?'),
      ];
    }
    const size = first ? 'of any size are put together' : 'have to be equal, but for the last, as ours are';
    return [partsFinding(size, listed)];
  }

  function partsFinding(what: string, listed: boolean | undefined): Finding {
    if (listed) return ok('parts', `${what}, and listed`);
    const remedy = 'an interrupted upload starts again; a store that lists parts would let it go on';
    return not(
      'note',
      'parts',
      `${what}, but ${listed === undefined ? 'cannot be listed' : 'are not listed rightly'}`,
      remedy,
    );
  }

  async function giveUp(): Promise<Finding[]> {
    const UploadId = await beginUpload();
    try {
      await client.send(new AbortMultipartUploadCommand({ ...at, UploadId }));
    } catch (error) {
      if (!isUnsupported(error)) throw error;
      const remedy = 'the parts of interrupted uploads stay in it, and have to be removed there';
      return [not('wrong', 'give up', 'the store cannot end an upload in parts', remedy)];
    }
    const left = await client.send(new ListPartsCommand({ ...at, UploadId })).then(
      () => true,
      (error) => statusOf(error) !== 404 && !isUnsupported(error),
    );
    if (left)
      return [not('note', 'give up', 'an upload that was given up is still there', 'add a lifecycle rule for it')];
    uploads.delete(UploadId);
    return [ok('give up', 'an upload in parts is forgotten when told so')];
  }

  async function openUploads(): Promise<Finding[]> {
    const dayAgo = Date.now() - 86_400_000;
    let open = 0;
    let old = 0;
    for await (const { key, begun } of listUploads(client, options)) {
      if (key === probeKey) continue;
      open++;
      if (begun && begun.getTime() < dayAgo) old++;
      if (open === 10_000) break;
    }
    if (old === 0) return [ok('open uploads', open === 0 ? 'none' : `${open}, none older than a day`)];
    return [
      not('note', 'open uploads', `${open}, of which ${old} are older than a day`, 'a running service removes its own'),
    ];
  }

  async function lifecycle(): Promise<Finding[]> {
    const rules = await client.send(new GetBucketLifecycleConfigurationCommand({ Bucket: bucket })).then(
      ({ Rules }) => (Rules ?? []).filter((rule) => rule.Status === 'Enabled'),
      (error) => {
        if (codeOf(error) === 'NoSuchLifecycleConfiguration' || statusOf(error) === 404) return [];
        throw error;
      },
    );
    return lifecycleFindings(rules, full(''));
  }

  async function versioning(): Promise<Finding[]> {
    const { Status } = await client.send(new GetBucketVersioningCommand({ Bucket: bucket }));
    if (Status === 'Enabled')
      return [ok('versions', 'on: what is overwritten or removed stays as an older version, and counts')];
    stays = false;
    return [ok('versions', 'off: what is overwritten or removed is gone')];
  }

  /** A bucket without versions has no lock. */
  async function objectLock(): Promise<Finding[]> {
    if (stays === false) return [];
    const rule = await client.send(new GetObjectLockConfigurationCommand({ Bucket: bucket })).then(
      ({ ObjectLockConfiguration }) => ObjectLockConfiguration?.Rule?.DefaultRetention,
      (error) => {
        if (statusOf(error) === 403) throw error;
      },
    );
    if (!rule) return [ok('object lock', 'no default retention')];
    stays = true;
    const time = rule.Years ? `${rule.Years} years` : `${rule.Days} days`;
    const found = `${rule.Mode} for ${time}: what is overwritten or removed stays that long, and counts`;
    return [ok('object lock', found)];
  }
}

const noMultipart = 'files of more than 32 MiB cannot be mirrored: take a store with multipart uploads';

function unlessUnsupported(error: unknown): undefined {
  if (!isUnsupported(error)) throw error;
}

/** Rules of the bucket as they touch what lies below `prefix`. */
export function lifecycleFindings(rules: LifecycleRule[], prefix: string): Finding[] {
  const what = 'lifecycle';
  const prefixOf = (rule: LifecycleRule) => rule.Filter?.Prefix ?? rule.Filter?.And?.Prefix ?? rule.Prefix ?? '';
  const tagged = (rule: LifecycleRule) => Boolean(rule.Filter?.Tag || rule.Filter?.And?.Tags?.length);
  const touching = rules.filter((rule) => {
    const theirs = prefixOf(rule);
    return (theirs.startsWith(prefix) || prefix.startsWith(theirs)) && !tagged(rule);
  });
  const findings: Finding[] = [];
  for (const rule of touching) {
    const named = rule.ID ? `rule "${rule.ID}"` : 'a rule';
    if (rule.Expiration?.Days || rule.Expiration?.Date) {
      const when = rule.Expiration.Days ? `after ${rule.Expiration.Days} days` : 'on a date';
      findings.push(not('wrong', what, `${named} removes objects ${when}`, 'take the mirror out of this rule'));
    }
    const cold = rule.Transitions?.find(({ StorageClass }) => /GLACIER$|DEEP_ARCHIVE/.test(StorageClass ?? ''));
    if (cold) {
      const found = `${named} moves objects to ${cold.StorageClass}`;
      findings.push(not('note', what, found, 'there they cannot be read at once, nor verified'));
    }
  }
  const clears = touching.find(
    (rule) => rule.AbortIncompleteMultipartUpload?.DaysAfterInitiation && prefix.startsWith(prefixOf(rule)),
  );
  const days = clears?.AbortIncompleteMultipartUpload?.DaysAfterInitiation;
  findings.push(
    days
      ? ok(what, `uploads that were never ended are removed after ${days} ${days === 1 ? 'day' : 'days'}`)
      : not(
          'note',
          what,
          'no rule removes uploads in parts that were never ended',
          'add AbortIncompleteMultipartUpload of some days: parts that nobody knows of cost',
        ),
  );
  return findings;
}

/** Whether it is the bucket of the records. */
function identityFinding(found: string | undefined, known: string | null | undefined): Finding {
  if (known === null) {
    const which = found ? 'is a mirror already' : 'has none yet';
    return not('note', 'identity', `${which}; whether it is that of the records could not be looked up`);
  }
  if (known === undefined) {
    if (!found) return ok('identity', 'new to the records');
    const remedy = 'asset-mirror rebuild, if the database was lost; else correct DATABASE_URL or STORAGE_URL';
    return not('note', 'identity', 'is a mirror already, and the records are new', remedy);
  }
  if (found === known) return ok('identity', 'is the one that the records are about');
  return not(
    'wrong',
    'identity',
    found ? `its object ${bucketIdKey} says ${found}, the records say ${known}` : `there is no object ${bucketIdKey}`,
    'is the disk mounted, is STORAGE_URL right?',
  );
}

/** What a directory and its file system can do. A directory that is not there is not made. */
export async function* probeDirectory(options: { path: string }, knownId?: string | null): AsyncGenerator<Finding> {
  const { path } = options;
  const there = await stat(path).catch(() => undefined);
  if (!there) {
    const near = await nearest(path);
    if (knownId) yield identityFinding(undefined, knownId);
    else if (await exists(near, constants.W_OK))
      yield not('note', 'directory', `${path} is not there yet`, 'the first start makes it');
    else
      yield not('wrong', 'directory', `${path} is not there, nor can it be made`, `let this account write to ${near}`);
    return;
  }
  const storage = await openDirectory({ path });
  try {
    try {
      await storage.check();
      yield ok('objects', 'are written and synced to the disk');
    } catch (error) {
      const { found, remedy } = told(reasonOf(error).replace(`${path}: `, ''));
      yield not('wrong', 'objects', found, remedy ?? `let this account write to ${path}, or correct STORAGE_URL`);
      return;
    }
    const id = await storage.get(bucketIdKey);
    let text = '';
    for await (const chunk of id ?? []) text += chunk;
    yield identityFinding(text.trim() || undefined, knownId);

    const { bavail, blocks, bsize, files, ffree } = await statfs(path);
    const free = `${formatBytes(bavail * bsize)} free of ${formatBytes(blocks * bsize)}`;
    if (bavail * bsize < 2 ** 30) yield not('note', 'room', free, 'make room, or move the mirror to a larger disk');
    else if (files > 0 && ffree < 10_000)
      yield not('note', 'room', `${ffree} more files`, 'the file system has few left');
    else yield ok('room', free);

    if (await ignoresCase(join(path, '.asset-mirror-tmp'))) {
      const remedy = 'of two assets whose ids differ only in case the second one fails; take another file system';
      yield not('note', 'names', 'upper and lower case are the same here', remedy);
    } else yield ok('names', 'upper and lower case are told apart');
  } finally {
    await storage.close();
  }
}

async function nearest(path: string): Promise<string> {
  for (let at = dirname(path); ; at = dirname(at)) {
    if (at === dirname(at) || (await stat(at).catch(() => undefined))) return at;
  }
}
