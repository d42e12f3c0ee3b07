// @module-tag slow
import { ListMultipartUploadsCommand } from '@aws-sdk/client-s3';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { Rejected } from '../../../src/floor/errors.ts';
import type { Finding } from '../../../src/floor/finding.ts';
import { probeS3 } from '../../../src/storage/s3/probe/probe-s3.ts';
import { UploadLost } from '../../../src/storage/storage.ts';
import { asks, newHttpLine } from '../../support/http-line.ts';
import { bytesOf, MiB, streaming } from '../bodies.ts';
import { newBucket, openBucket } from '../grounds.ts';
import { type BehindLine, newBucketBehindLine } from './behind-line.ts';

const server = inject('s3modern') ?? inject('s3');
if (!server) test.skip('S3 is not tested: no server is installed');

const listParts = ({ method, url }: { method: string; url: string }) => method === 'GET' && url.includes('uploadId=');
const listUploads = ({ method, url }: { method: string; url: string }) =>
  method === 'GET' && /[?&]uploads(=|&|$)/.test(url);
const refusals = [
  { status: 405, body: '<Error><Code>MethodNotAllowed</Code></Error>' },
  { status: 501, body: '<Error><Code>NotImplemented</Code></Error>' },
];

const bad = (findings: Finding[]) => findings.filter(({ level }) => level === 'wrong');
const of = (findings: Finding[], what: string) => findings.find((finding) => finding.what === what);
const probeOver = (endpoint: string, bucket: string) =>
  Array.fromAsync(
    probeS3({
      ...{ bucket, prefix: '', endpoint, region: server!.region },
      ...{ forcePathStyle: true, checksums: 'auto', connections: 4 },
    }),
  );

describe.runIf(server).each(refusals)('a store that answers $status', (answer) => {
  let place: BehindLine;
  let { ground, line, storage } = {} as BehindLine;
  const lacks = (...on: ((call: { method: string; url: string }) => boolean)[]) =>
    line.set(...on.map((each) => ({ on: each, times: Number.POSITIVE_INFINITY, answer })));
  const probe = () => probeOver(line.endpoint, ground.bucket);
  beforeEach(async () => {
    place = await newBucketBehindLine(server!);
    ({ ground, line, storage } = place);
  });
  afterEach(() => place?.close());

  test('a store that refuses ListParts cannot continue an upload, but can abort it', async () => {
    lacks(listParts);
    const upload = await storage.uploads.begin('film.mp4', { bytes: 40 * MiB });
    const part = await storage.uploads.put(upload, 1, streaming(bytesOf(16 * MiB)));
    await expect(storage.uploads.list(upload)).rejects.toThrow(UploadLost);
    await storage.uploads.abort(upload);
    expect(await ground.leftovers()).toEqual([]);
    await expect(storage.uploads.complete(upload, [part])).rejects.toThrow(UploadLost);
  });

  test('a store that refuses AbortMultipartUpload is reported to keep parts, and uploads are still given up', async () => {
    lacks(listParts, ({ method, url }) => method === 'DELETE' && url.includes('uploadId='));
    const upload = await storage.uploads.begin('film.mp4', { bytes: 40 * MiB });
    await storage.uploads.abort(upload);
    expect(bad(await probe())).toMatchObject([
      { what: 'abort uploads', found: expect.stringMatching(/cannot abort an upload in parts/) },
    ]);
    const { Uploads = [] } = await ground.raw.send(new ListMultipartUploadsCommand({ Bucket: ground.bucket }));
    for (const { Key, UploadId } of Uploads) await ground.abort(Key!, UploadId!);
  });

  test('a store that refuses ListMultipartUploads has nothing to sweep', async () => {
    lacks(listUploads);
    const strays = async () => new Set<string>();
    expect(await storage.sweep({ olderThan: new Date(), strays })).toBe(0);
  });

  test.each([
    ['CreateMultipartUpload', asks.begin],
    ['UploadPart', asks.part],
    ['CompleteMultipartUpload', asks.complete],
  ])('a store that refuses %s fails the probe, because large files cannot be mirrored', async (_, request) => {
    lacks(request);
    const findings = await probe();
    expect(bad(findings).map(({ what }) => what)).toContain('parts');
    expect(bad(findings)[0]).toMatchObject({
      found: expect.stringContaining('has no multipart uploads'),
      remedy: expect.stringMatching(/more than 32 MiB cannot be mirrored/),
    });
    expect(await ground.leftovers()).toEqual([]);
  });

  test('a store that refuses ListParts and ListMultipartUploads passes the probe, which names the effects', async () => {
    lacks(listParts, listUploads);
    const findings = await probe();
    expect(bad(findings)).toEqual([]);
    expect(of(findings, 'parts')).toMatchObject({ level: 'note', found: expect.stringMatching(/cannot be listed/) });
    expect(of(findings, 'abort uploads')).toMatchObject({ level: 'ok' });
    expect(of(findings, 'open uploads')).toMatchObject({ level: 'note' });
    expect(await ground.leftovers()).toEqual([]);
  });

  test('a store that refuses CreateMultipartUpload rejects the object without another try', async () => {
    lacks(asks.begin);
    await expect(storage.uploads.begin('film.mp4', { bytes: 40 * MiB })).rejects.toThrow(Rejected);
  });
});

const modern = inject('s3modern');
describe.runIf(modern)('a store that takes no PUT without a checksum', () => {
  let ground: Awaited<ReturnType<typeof newBucket>>;
  let line: Awaited<ReturnType<typeof newHttpLine>>;
  beforeEach(async () => {
    ground = await newBucket(modern!);
    line = await newHttpLine(modern!.endpoint);
    line.set({
      on: ({ method, headers }) =>
        method === 'PUT' && !Object.keys(headers).some((name) => /^(x-amz-(checksum-|trailer)|content-md5)/.test(name)),
      times: Number.POSITIVE_INFINITY,
      answer: {
        status: 400,
        body: '<Error><Code>InvalidRequest</Code><Message>Content-MD5 OR x-amz-checksum- HTTP header is required</Message></Error>',
      },
    });
  });
  afterEach(async () => {
    await line.close();
    await ground.clear();
  });

  test('a store that takes no PUT without a checksum stores objects, and passes the probe', {}, async () => {
    const storage = await openBucket({ ...modern!, endpoint: line.endpoint }, { bucket: ground.bucket });
    try {
      await storage.check();
      await storage.put('text', 'text');
      await storage.put('stream', streaming(bytesOf(MiB)), { bytes: MiB });
      const upload = await storage.uploads.begin('film.mp4', { bytes: 33 * MiB });
      const parts = [
        await storage.uploads.put(upload, 1, streaming(bytesOf(16 * MiB))),
        await storage.uploads.put(upload, 2, streaming(bytesOf(16 * MiB))),
        await storage.uploads.put(upload, 3, streaming(bytesOf(MiB))),
      ];
      await storage.uploads.complete(upload, parts);
      expect((await Array.fromAsync(storage.list(''))).map(({ key }) => key)).toEqual(['film.mp4', 'stream', 'text']);
    } finally {
      await storage.close();
    }
    const findings = await probeOver(line.endpoint, ground.bucket);
    expect(bad(findings)).toEqual([]);
  });
});

describe.runIf(server)('a store that answers with a checksum of another kind than was sent', () => {
  test('an object is compared by length if the store answers with a checksum of another kind', async () => {
    const ground = await newBucket(server!);
    const line = await newHttpLine(server!.endpoint);
    const storage = await openBucket(
      { ...server!, endpoint: line.endpoint },
      { bucket: ground.bucket, checksums: 'none' },
    );
    try {
      const always = { times: Number.POSITIVE_INFINITY };
      line.set(
        { ...always, on: ({ method }) => method === 'PUT', addHeaders: { 'x-amz-checksum-sha256': 'AAAA' } },
        { ...always, on: ({ method }) => method === 'HEAD', addHeaders: { 'content-length': '5' } },
      );
      // More than one block, which has no SHA-256 to compare.
      const put = storage.put('long', streaming(bytesOf(17 * MiB)), { bytes: 17 * MiB });
      await expect(put).rejects.toThrow(/has length 5 instead of/);
    } finally {
      await storage.close();
      await line.close();
      await ground.clear();
    }
  });
});
