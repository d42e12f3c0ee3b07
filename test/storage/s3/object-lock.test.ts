// @module-tag slow
import { PutObjectLockConfigurationCommand, type S3Client } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { StorageUnavailable } from '../../../src/floor/errors.ts';
import { withMirrorIdCheck } from '../../../src/storage/mirror-id.ts';
import { probeS3 } from '../../../src/storage/s3/probe/probe-s3.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { newHttpLine } from '../../support/http-line.ts';
import type { S3Server } from '../../support/services.ts';
import { openBucket } from '../grounds.ts';
import { locking, startLocking } from '../locking.ts';

for (const { name, there } of locking) if (!there) test.skip(`Object Lock is not tested: ${name} is not installed`);

describe.each(locking.filter(({ there }) => there))('a bucket of $name with locked versions', ({ start }) => {
  let server: S3Server;
  let raw: S3Client;
  let bucket: string;
  let place: Awaited<ReturnType<typeof startLocking>>;
  beforeAll(async () => {
    place = await startLocking(start);
    ({ server, raw } = place);
  });
  afterAll(() => place?.stop());

  async function newBucket(): Promise<void> {
    bucket = await place.newBucket();
    await raw.send(
      new PutObjectLockConfigurationCommand({
        Bucket: bucket,
        ObjectLockConfiguration: {
          ObjectLockEnabled: 'Enabled',
          Rule: { DefaultRetention: { Mode: 'GOVERNANCE', Days: 1 } },
        },
      }),
    );
  }
  const versions = () => place.versions(bucket);

  test('a bucket with locked versions keeps one small object of each probe, and the probe says so', async () => {
    await newBucket();
    const { endpoint, region } = server;
    const options = { bucket, prefix: '', endpoint, region, forcePathStyle: true } as const;
    for (let run = 1; run <= 2; run++) {
      const findings = await Array.fromAsync(probeS3({ ...options, checksums: 'auto', connections: 4 }));
      expect(findings.filter(({ level }) => level === 'wrong')).toEqual([]);
      expect(findings).toContainEqual(
        expect.objectContaining({ what: 'object lock', found: expect.stringMatching(/^GOVERNANCE for 1 day:/) }),
      );
      expect(findings.find(({ what }) => what === 'parts')).toMatchObject({
        level: 'ok',
        found: 'are accepted, and listed; completing an upload was not tried, because its object would stay',
      });
      expect(findings.find(({ what }) => what === 'left behind')?.found).toMatch(/^1 version of _mirror\/probe$/);
      const left = await versions();
      expect(left.map(({ key }) => key)).toEqual(Array(run).fill('_mirror/probe'));
      for (const { bytes } of left) expect(bytes).toBeLessThan(100);
    }
  });

  test.each([
    ['whether it keeps versions', /[?&]versioning/, /^GOVERNANCE for 1 day:/],
    ['whether it keeps or locks versions', /[?&](versioning|object-lock)/, /denies access/],
  ])('a bucket with locked versions is recognized even if %s is denied', async (_, asks, lock) => {
    await newBucket();
    const line = await newHttpLine(server.endpoint);
    const denied = { status: 403, body: '<Error><Code>AccessDenied</Code></Error>' };
    line.set({ on: ({ url }) => asks.test(url), times: Number.POSITIVE_INFINITY, answer: denied });
    const options = { bucket, prefix: '', endpoint: line.endpoint, region: server.region, forcePathStyle: true };
    try {
      const findings = await Array.fromAsync(probeS3({ ...options, checksums: 'auto', connections: 4 }));
      expect(findings.filter(({ level }) => level === 'wrong')).toEqual([]);
      expect(findings.find(({ what }) => what === 'object lock')?.found).toMatch(lock);
      expect(findings.find(({ what }) => what === 'left behind')?.found).toMatch(/^1 version of _mirror\/probe$/);
      const [left, ...more] = await versions();
      expect(left).toMatchObject({ key: '_mirror/probe' });
      expect(left!.bytes).toBeLessThan(100);
      expect(more).toEqual([]);
    } finally {
      await line.close();
    }
  });

  test('a bucket with locked versions is checked without a write, until a write has failed', async () => {
    await newBucket();
    const line = await newHttpLine(server.endpoint);
    const objects = await openBucket({ ...server, endpoint: line.endpoint }, { bucket });
    const storage: Storage = withMirrorIdCheck(objects, async (find) => (settled ??= await find('the-id')));
    let settled: string | undefined;
    const writes = () => line.calls.filter(({ method }) => !['GET', 'HEAD'].includes(method));
    try {
      await storage.check();
      const before = await versions();
      line.set();
      for (let check = 0; check < 10; check++) await storage.check();
      expect(writes()).toEqual([]);
      expect(await versions()).toEqual(before);

      // Reads still work.
      const full = { status: 507, body: '<Error><Code>XMinioStorageFull</Code></Error>' };
      line.set({ on: ({ method }) => method === 'PUT', times: Number.POSITIVE_INFINITY, answer: full });
      await expect(storage.put('a', 'text')).rejects.toThrow(StorageUnavailable);
      await expect(storage.check()).rejects.toThrow(/the store is full/);
      line.set();
      await storage.check();
      expect(writes().length).toBeGreaterThan(0);
      line.set();
      await storage.check();
      expect(writes()).toEqual([]);
      const added = (await versions()).slice(before.length);
      expect(added.length).toBeLessThanOrEqual(1);
    } finally {
      await storage.close();
      await line.close();
    }
  });
});
