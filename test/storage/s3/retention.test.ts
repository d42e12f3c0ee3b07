// @module-tag slow
import { Readable } from 'node:stream';
import {
  CreateBucketCommand,
  DeleteObjectCommand,
  GetObjectRetentionCommand,
  HeadObjectCommand,
} from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { probeS3 } from '../../../src/storage/s3/probe/probe-s3.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { newHttpLine } from '../../support/http-line.ts';
import { keptObjects } from '../conformance/kept-objects.ts';
import { lockedObjects } from '../conformance/locked-objects.ts';
import { purgedObjects } from '../conformance/purged-objects.ts';
import { openBucket } from '../grounds.ts';
import { locking, startLocking } from '../locking.ts';

const hour = 3_600_000;
const governance = { mode: 'GOVERNANCE', ms: hour } as const;
const lasting = (until: Date | undefined) => ((until?.getTime() ?? 0) - Date.now()) / hour;

describe.each(locking.filter(({ there }) => there))('S3_OBJECT_LOCK on $name', ({ start }) => {
  let place: Awaited<ReturnType<typeof startLocking>>;
  beforeAll(async () => {
    place = await startLocking(start);
  });
  afterAll(() => place?.stop());

  describe('the guarantees of the store', () => {
    let storage: Storage;
    beforeAll(async () => {
      const objectLock = { mode: 'GOVERNANCE', ms: 60_000 } as const;
      const bucket = await place.newBucket();
      storage = await openBucket(place.server, { bucket, prefix: 'below/a prefix', objectLock });
    });
    afterAll(() => storage?.close());
    keptObjects(() => storage);
    purgedObjects(() => storage);
    lockedObjects(() => storage);
  });

  const locked = async (bucket: string, objectLock: { mode: 'GOVERNANCE' | 'COMPLIANCE'; ms: number } = governance) =>
    openBucket(place.server, { bucket, objectLock });
  const head = (bucket: string, key: string) => place.raw.send(new HeadObjectCommand({ Bucket: bucket, Key: key }));
  const media = { media: true } as const;

  test('locks media, written at once or in parts, and nothing else', async () => {
    const bucket = await place.newBucket();
    const storage = await locked(bucket);
    await storage.put('whole', Readable.from([Buffer.from('film')]), { ...media, bytes: 4 });
    await storage.put('bytes', 'film', media);
    const bytes = 6 * 2 ** 20;
    const upload = await storage.uploads.begin('parts', { ...media, bytes });
    const parts = [5 * 2 ** 20, 2 ** 20].map((length, index) =>
      storage.uploads.put(upload, index + 1, Readable.from([Buffer.alloc(length)])),
    );
    await storage.uploads.complete(upload, await Promise.all(parts));
    await storage.put('record', '{}');
    for (const key of ['whole', 'bytes', 'parts']) {
      const { ObjectLockMode, ObjectLockRetainUntilDate } = await head(bucket, key);
      expect({ key, mode: ObjectLockMode }).toEqual({ key, mode: 'GOVERNANCE' });
      expect(lasting(ObjectLockRetainUntilDate)).toBeGreaterThan(0.98);
      expect(lasting(ObjectLockRetainUntilDate)).toBeLessThan(1.02);
    }
    expect((await head(bucket, 'record')).ObjectLockMode).toBeUndefined();
    await storage.close();
  });

  test('a locked version stays when its media is replaced or removed, and neither fails', async () => {
    const bucket = await place.newBucket();
    const storage = await locked(bucket, { mode: 'COMPLIANCE', ms: 60_000 });
    await storage.put('film', 'first', media);
    await storage.put('film', 'second', media);
    await storage.remove('film');
    expect(await storage.head('film')).toBeUndefined();
    const versions = (await place.versions(bucket)).filter(({ isMarker }) => !isMarker);
    expect(
      versions
        .filter(({ key }) => key === 'film')
        .map(({ bytes }) => bytes)
        .sort(),
    ).toEqual([5, 6]);
    for (const { key, id } of versions.filter(({ key }) => key === 'film')) {
      const removed = place.raw.send(new DeleteObjectCommand({ Bucket: bucket, Key: key, VersionId: id }));
      await expect(removed).rejects.toThrow();
    }
    // The same key can be used again.
    expect(await storage.put('film', 'third', media)).toMatchObject({ bytes: 5 });
    expect(await storage.head('film')).toMatchObject({ bytes: 5 });
    await storage.close();
  });

  test('a lock is extended only when less than half of it remains', async () => {
    const bucket = await place.newBucket();
    const short = await locked(bucket, { mode: 'GOVERNANCE', ms: 10 * 60_000 });
    await short.put('film', 'film', media);
    const plain = await openBucket(place.server, { bucket });
    await plain.put('older', 'written before the setting');
    const storage = await locked(bucket);
    for (const key of ['film', 'older']) {
      const until = await storage.lock!.extend(key);
      expect(lasting(until)).toBeGreaterThan(0.98);
      const { Retention } = await place.raw.send(new GetObjectRetentionCommand({ Bucket: bucket, Key: key }));
      expect(Retention).toMatchObject({ Mode: 'GOVERNANCE' });
      expect(Math.abs(Retention!.RetainUntilDate!.getTime() - until!.getTime())).toBeLessThan(1000);
      // It is not shortened by a setting that is shorter now.
      expect(Math.abs((await short.lock!.extend(key))!.getTime() - until!.getTime())).toBeLessThan(1000);
    }
    expect(await storage.lock!.extend('nothing')).toBeUndefined();
    await Promise.all([short.close(), plain.close(), storage.close()]);
  });

  test('a lock in another mode is extended in its own mode', async () => {
    const bucket = await place.newBucket();
    const short = await locked(bucket, { mode: 'COMPLIANCE', ms: 10 * 60_000 });
    await short.put('film', 'film', media);
    const storage = await locked(bucket);
    expect(lasting(await storage.lock!.extend('film'))).toBeGreaterThan(0.98);
    expect((await head(bucket, 'film')).ObjectLockMode).toBe('COMPLIANCE');
    await Promise.all([short.close(), storage.close()]);
  });

  const probe = async (bucket: string, options: object, endpoint = place.server.endpoint) => {
    const { region } = place.server;
    const at = {
      bucket,
      prefix: '',
      endpoint,
      region,
      forcePathStyle: true,
      checksums: 'auto',
      connections: 4,
    } as const;
    return Array.fromAsync(probeS3({ ...at, ...options }));
  };

  test('the doctor says what the setting means, and leaves nothing locked', async () => {
    const bucket = await place.newBucket();
    const governed = await probe(bucket, { objectLock: { mode: 'GOVERNANCE', ms: 365 * 24 * hour } });
    expect(governed.filter(({ level }) => level === 'wrong')).toEqual([]);
    expect(governed).toContainEqual(
      expect.objectContaining({
        what: 'object lock',
        level: 'ok',
        found:
          'each media file is locked (GOVERNANCE) until 365 days after it was written, and longer while it is in the library',
      }),
    );
    expect(governed.find(({ what }) => what === 'not to be undone')?.found).toMatch(/s3:BypassGovernanceRetention/);
    expect(governed.find(({ what }) => what === 'extend lock')?.level).toBe('ok');
    const complied = await probe(bucket, { objectLock: { mode: 'COMPLIANCE', ms: 60_000 } });
    expect(complied.find(({ what }) => what === 'not to be undone')?.found).toMatch(/nobody .* not even the owner/);
    expect(await place.versions(bucket)).toEqual([]);
  });

  test('the doctor reports a bucket without Object Lock, and a missing permission', async () => {
    const bucket = `plain-${crypto.randomUUID()}`;
    await place.raw.send(new CreateBucketCommand({ Bucket: bucket }));
    expect(await probe(bucket, { objectLock: governance })).toContainEqual(
      expect.objectContaining({
        what: 'object lock',
        level: 'wrong',
        remedy: expect.stringContaining('S3_OBJECT_LOCK'),
      }),
    );
    const line = await newHttpLine(place.server.endpoint);
    line.set({
      on: ({ method, url }) => method === 'PUT' && /[?&]retention/.test(url),
      times: Number.POSITIVE_INFINITY,
      answer: { status: 403, body: '<Error><Code>AccessDenied</Code></Error>' },
    });
    const denied = { status: 403, body: '<Error><Code>AccessDenied</Code></Error>' };
    const cannotList = await newHttpLine(place.server.endpoint);
    cannotList.set({ on: ({ url }) => /[?&]versions/.test(url), times: Number.POSITIVE_INFINITY, answer: denied });
    expect(await probe(await place.newBucket(), {}, cannotList.endpoint)).toContainEqual(
      expect.objectContaining({
        what: 'versions',
        level: 'note',
        remedy: expect.stringContaining('s3:ListBucketVersions'),
      }),
    );
    await cannotList.close();
    const findings = await probe(await place.newBucket(), { objectLock: governance }, line.endpoint);
    expect(findings.filter(({ level }) => level === 'wrong')).toEqual([
      expect.objectContaining({ what: 'extend lock', remedy: 'allow s3:PutObjectRetention' }),
    ]);
    await line.close();
  });
});
