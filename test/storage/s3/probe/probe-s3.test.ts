import {
  CreateMultipartUploadCommand,
  DeleteBucketPolicyCommand,
  DeleteObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectVersionsCommand,
  PutBucketLifecycleConfigurationCommand,
  PutBucketPolicyCommand,
  PutBucketVersioningCommand,
} from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import type { Finding } from '../../../../src/floor/finding.ts';
import type { S3Options } from '../../../../src/storage/s3/client.ts';
import { lifecycleFindings } from '../../../../src/storage/s3/probe/lifecycle.ts';
import { probeS3 } from '../../../../src/storage/s3/probe/probe-s3.ts';
import type { Storage } from '../../../../src/storage/storage.ts';
import { freePort } from '../../../support/ports.ts';
import { newBucket } from '../../grounds.ts';

const servers = [inject('s3'), inject('s3modern')].filter((server) => server !== undefined);
const ceph = inject('s3')!;
if (servers.length === 0) test.skip('S3 is not tested: no server is installed');

const optionsOf = (server: (typeof servers)[number], bucket: string, more: Partial<S3Options> = {}): S3Options => ({
  bucket,
  prefix: '',
  endpoint: server.endpoint,
  region: server.region,
  forcePathStyle: true,
  checksums: 'auto',
  connections: 4,
  ...more,
});
const probe = (options: S3Options) => Array.fromAsync(probeS3(options));
const of = (findings: Finding[], what: string) => findings.find((finding) => finding.what === what);
const bad = (findings: Finding[]) => findings.filter(({ level }) => level === 'wrong');
const keysIn = async (storage: Storage) => (await Array.fromAsync(storage.list(''))).map(({ key }) => key);

describe.each(servers)('a bucket of $name', (server) => {
  let ground: Awaited<ReturnType<typeof newBucket>>;
  const options = (more: Partial<S3Options> = {}) => optionsOf(server, ground.bucket, more);
  beforeAll(async () => {
    ground = await newBucket(server);
  });
  afterAll(() => ground?.clear());

  test('a bucket that works passes the probe, which leaves nothing behind', async () => {
    await ground.storage.put('there/before', 'stays');
    const findings = await probe(options());
    expect(bad(findings)).toEqual([]);
    for (const what of ['objects', 'checksums', 'parts', 'abort uploads', 'open uploads', 'clock']) {
      expect(of(findings, what)).toMatchObject({ area: 'bucket', what, level: 'ok' });
    }
    const modern = server === inject('s3modern');
    expect(of(findings, 'checksums')!.chosen).toBe(modern ? 'sha256' : 'md5-etag');
    expect(await keysIn(ground.storage)).toEqual(['there/before']);
    expect(await ground.leftovers()).toEqual([]);
  });

  test('the probe removes what an interrupted probe has left in the bucket', async () => {
    for (const last of ['objects', 'checksums', 'parts', 'abort uploads']) {
      for await (const { what } of probeS3(options({ prefix: 'off' }))) if (what === last) break;
      expect((await keysIn(ground.storage)).filter((key) => key.startsWith('off'))).toEqual([]);
      expect(await ground.leftovers()).toEqual([]);
    }
  });

  test('the probe keeps the uploads of other programs, and counts only those of the mirror', async () => {
    const begin = (Key: string) => ground.raw.send(new CreateMultipartUploadCommand({ Bucket: ground.bucket, Key }));
    await begin('others/film.mov');
    await begin('mine/film.mov');
    expect(of(await probe(options({ prefix: 'mine' })), 'open uploads')!.found).toMatch(/^1, none older/);
    const { Uploads } = await ground.raw.send(new ListMultipartUploadsCommand({ Bucket: ground.bucket }));
    expect(Uploads!.map(({ Key }) => Key).sort()).toEqual(['mine/film.mov', 'others/film.mov']);
    await Promise.all(Uploads!.map((upload) => ground.abort(upload.Key!, upload.UploadId!)));
  });

  test('the probe of a bucket that does not exist has this one finding only', async () => {
    const findings = await probe({ ...options(), bucket: 'no-such-bucket-here' });
    expect(findings).toHaveLength(1);
    expect(findings[0]).toMatchObject({ level: 'wrong', found: 'the bucket does not exist' });
    expect(findings[0]!.remedy).toMatch(/create the bucket, or correct STORAGE_URL/);
  });

  test('the probe tells an unknown access key from a wrong secret', async () => {
    const { AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY } = process.env;
    try {
      process.env.AWS_SECRET_ACCESS_KEY = 'not the secret of it';
      expect(await probe(options())).toMatchObject([{ level: 'wrong', remedy: expect.stringMatching(/secret key/) }]);
      process.env.AWS_ACCESS_KEY_ID = 'nobody';
      expect(await probe(options())).toMatchObject([{ level: 'wrong', remedy: expect.stringMatching(/credentials/) }]);
    } finally {
      Object.assign(process.env, { AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY });
    }
  });

  test('the probe reports an endpoint where nothing listens', async () => {
    const findings = await probe(options({ endpoint: `http://127.0.0.1:${await freePort()}` }));
    expect(findings).toMatchObject([
      {
        level: 'wrong',
        found: expect.stringMatching(/^nothing listens at 127\.0\.0\.1:\d+ \(ECONNREFUSED\)$/),
        remedy: 'start the server there, or correct S3_ENDPOINT',
      },
    ]);
  });
});

describe.runIf(ceph)('the probe of an unusual bucket', () => {
  let ground: Awaited<ReturnType<typeof newBucket>>;
  const options = (more: Partial<S3Options> = {}) => optionsOf(ceph, ground.bucket, more);
  beforeAll(async () => {
    ground = await newBucket(ceph);
  });
  afterAll(() => ground?.clear());

  const deny = (...Action: string[]) =>
    ground.raw.send(
      new PutBucketPolicyCommand({
        Bucket: ground.bucket,
        Policy: JSON.stringify({
          Version: '2012-10-17',
          Statement: [
            {
              Effect: 'Deny',
              Principal: '*',
              Action,
              Resource: [`arn:aws:s3:::${ground.bucket}`, `arn:aws:s3:::${ground.bucket}/*`],
            },
          ],
        }),
      }),
    );

  test.each([
    ['abort uploads', 's3:AbortMultipartUpload', 'wrong'],
    ['parts', 's3:ListMultipartUploadParts', 'wrong'],
    ['open uploads', 's3:ListBucketMultipartUploads', 'note'],
  ])('the finding "%s" of the probe names the missing permission %s', async (what, action, level) => {
    await deny(action);
    const findings = await probe(options());
    await ground.raw.send(new DeleteBucketPolicyCommand({ Bucket: ground.bucket }));
    expect(of(findings, what)).toMatchObject({ level, remedy: expect.stringContaining(action) });
    const { Uploads = [] } = await ground.raw.send(new ListMultipartUploadsCommand({ Bucket: ground.bucket }));
    await Promise.all(Uploads.map((upload) => ground.abort(upload.Key!, upload.UploadId!)));
  });

  test('the probe reports an S3_CHECKSUMS that the store does not support', async () => {
    const findings = await probe(options({ checksums: 'crc32' }));
    expect(bad(findings)).toMatchObject([{ what: 'checksums', remedy: expect.stringMatching(/set it to auto/) }]);
  });

  test('the probe tells whether a rule removes unfinished uploads', async () => {
    expect(of(await probe(options()), 'lifecycle')).toMatchObject({
      level: 'note',
      remedy: expect.stringMatching(/AbortIncompleteMultipartUpload/),
    });
    const clearAfter = (...days: number[]) => {
      const Rules = days.map((DaysAfterInitiation) => ({
        ID: `after ${DaysAfterInitiation}`,
        Status: 'Enabled' as const,
        Filter: { Prefix: '' },
        AbortIncompleteMultipartUpload: { DaysAfterInitiation },
      }));
      const configuration = { Bucket: ground.bucket, LifecycleConfiguration: { Rules } };
      return ground.raw.send(new PutBucketLifecycleConfigurationCommand(configuration));
    };
    await clearAfter(30, 1);
    expect(of(await probe(options()), 'lifecycle')).toMatchObject({
      level: 'note',
      found: expect.stringMatching(/after 1 day$/),
    });
    await clearAfter(7);
    expect(of(await probe(options()), 'lifecycle')).toMatchObject({
      level: 'ok',
      found: expect.stringMatching(/after 7 days/),
    });
  });

  const keepVersions = () =>
    ground.raw.send(
      new PutBucketVersioningCommand({ Bucket: ground.bucket, VersioningConfiguration: { Status: 'Enabled' } }),
    );

  test('the probe leaves no version behind where versions are kept', async () => {
    await keepVersions();
    const findings = await probe(options({ prefix: 'versions' }));
    expect(of(findings, 'versions')!.found).toMatch(/^on/);
    const left = await ground.raw.send(new ListObjectVersionsCommand({ Bucket: ground.bucket, Prefix: 'versions' }));
    expect([...(left.Versions ?? []), ...(left.DeleteMarkers ?? [])]).toEqual([]);
  });

  test('the probe leaves one small version behind where versions may not be removed', async () => {
    await keepVersions();
    await deny('s3:DeleteObjectVersion');
    const findings = await probe(options({ prefix: 'kept' }));
    await ground.raw.send(new DeleteBucketPolicyCommand({ Bucket: ground.bucket }));
    expect(of(findings, 'left behind')!.remedy).toMatch(/allow s3:DeleteObjectVersion/);
    const { Versions } = await ground.raw.send(
      new ListObjectVersionsCommand({ Bucket: ground.bucket, Prefix: 'kept' }),
    );
    expect(Versions).toMatchObject([{ Key: 'kept/_mirror/probe' }]);
    expect(Versions![0]!.Size).toBeLessThan(100);
    const [{ Key, VersionId }] = Versions as [{ Key: string; VersionId: string }];
    await ground.raw.send(new DeleteObjectCommand({ Bucket: ground.bucket, Key, VersionId }));
  });
});

describe('a lifecycle rule', () => {
  const enabled = { Status: 'Enabled' as const };

  test("a lifecycle rule that removes objects is wrong if it applies to the mirror's objects", () => {
    const removes = (Prefix: string) => ({ ...enabled, ID: 'old', Filter: { Prefix }, Expiration: { Days: 30 } });
    for (const prefix of ['', 'mir', 'mirror/', 'mirror/acme/']) {
      expect(lifecycleFindings([removes(prefix)], 'mirror/')[0]).toMatchObject({
        level: 'wrong',
        found: 'rule "old" removes objects after 30 days',
      });
    }
    expect(bad(lifecycleFindings([removes('logs/')], 'mirror/'))).toEqual([]);
  });

  test('a lifecycle rule that removes replaced versions is noted', () => {
    const removes = { ...enabled, Filter: { Prefix: '' }, NoncurrentVersionExpiration: { NoncurrentDays: 30 } };
    expect(lifecycleFindings([removes], '')[0]).toMatchObject({
      level: 'note',
      found: 'a rule removes versions 30 days after they are replaced',
    });
  });

  test('a lifecycle rule that moves objects to cold storage is noted', () => {
    const moves = {
      ...enabled,
      Filter: { Prefix: '' },
      Transitions: [{ Days: 90, StorageClass: 'DEEP_ARCHIVE' as const }],
    };
    expect(lifecycleFindings([moves], '')[0]).toMatchObject({
      level: 'note',
      found: expect.stringMatching(/DEEP_ARCHIVE/),
    });
  });
});
