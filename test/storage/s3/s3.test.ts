import { createHash } from 'node:crypto';
import {
  CreateBucketCommand,
  DeleteBucketCommand,
  HeadObjectCommand,
  ListObjectVersionsCommand,
  PutBucketVersioningCommand,
} from '@aws-sdk/client-s3';
import { create as contentDisposition, parse } from 'content-disposition';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { Rejected, RetryLater, reasonOf, StorageUnavailable } from '../../../src/floor/errors.ts';
import { isTemporary } from '../../../src/source/http.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { newCertificates } from '../../support/certificates.ts';
import { freePort } from '../../support/ports.ts';
import { newTlsFront } from '../../support/proxy.ts';
import { until } from '../../support/until.ts';
import { bytesOf, collected, KiB, MiB, streaming } from '../bodies.ts';
import { newBucket, openBucket, removeBucket } from '../grounds.ts';
import { newLine, type Trouble } from '../line.ts';

const s3 = inject('s3')!;
if (!s3) test.skip('S3 is not tested: no server is installed');

const md5 = (bytes: Buffer) => createHash('md5').update(bytes).digest('hex');
const answer = (status: string, body = '', headers = '') =>
  Buffer.from(`HTTP/1.1 ${status}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`);
const errorAnswer = (status: string, code: string) =>
  answer(status, `<?xml version="1.0"?><Error><Code>${code}</Code><Message>said so</Message></Error>`);
const lengths: [string, number, number | undefined][] = [
  ['100 bytes', 100, 100],
  ['1 MiB', MiB, MiB],
  ['8 MiB', 8 * MiB, 8 * MiB],
  ['40 MiB, not declared', 40 * MiB, undefined],
];

describe.runIf(s3)('an S3 store', () => {
  let ground: Awaited<ReturnType<typeof newBucket>>;
  beforeAll(async () => {
    ground = await newBucket(s3);
  });
  afterAll(() => ground?.clear());

  describe('an object in S3', () => {
    const head = (Key: string) => ground.raw.send(new HeadObjectCommand({ Bucket: ground.bucket, Key }));

    test.each(lengths)(
      'an object in S3 has its content type, its name in UTF-8 and its metadata (%s)',
      async (_, length, declared) => {
        const name = 'Grüße, "100 %" & 🎬; naïve.mp4';
        await ground.storage.put('carries', streaming(bytesOf(length)), {
          bytes: declared,
          contentType: 'video/mp4',
          contentDisposition: contentDisposition(name),
          metadata: { 'asset-id': 'a%2F1', 'upload-date': '1700000000', variant: 'original' },
        });
        const found = await head('carries');
        expect(found.ContentType).toBe('video/mp4');
        expect(parse(found.ContentDisposition!).parameters.filename).toBe(name);
        expect(found.Metadata).toEqual({ 'asset-id': 'a%2F1', 'upload-date': '1700000000', variant: 'original' });
      },
    );

    test('an object in S3 has the general content type if none is given', async () => {
      await ground.storage.put('plain', 'x');
      expect((await head('plain')).ContentType).toBe('application/octet-stream');
    });

    test.each(['vidéo/mp4', 'video/mp4; name=“clip”', 'text/plain\r\nx-evil: 1', `a/${'b'.repeat(9000)}`])(
      'an object in S3 has the general content type if its own cannot be a header (%.20s)',
      async (contentType) => {
        await ground.storage.put('untyped', 'x', { contentType });
        expect((await head('untyped')).ContentType).toBe('application/octet-stream');
      },
    );

    test('an object in S3 is stored below the prefix, and listed without it', async () => {
      const storage = await openBucket(s3, { bucket: ground.bucket, prefix: 'pre/fix' });
      await storage.put('one', 'x');
      expect((await head('pre/fix/one')).ContentLength).toBe(1);
      expect((await Array.fromAsync(storage.list(''))).map((object) => object.key)).toEqual(['one']);
      expect(storage.name).toBe(`s3://${ground.bucket}/pre/fix`);
      await storage.close();
    });

    test('a check leaves no version behind where versions are kept', async () => {
      const own = await newBucket(s3);
      try {
        await own.raw.send(
          new PutBucketVersioningCommand({ Bucket: own.bucket, VersioningConfiguration: { Status: 'Enabled' } }),
        );
        await own.storage.check();
        const left = await own.raw.send(new ListObjectVersionsCommand({ Bucket: own.bucket }));
        expect([...(left.Versions ?? []), ...(left.DeleteMarkers ?? [])]).toEqual([]);
      } finally {
        await own.clear();
      }
    });

    test.each(lengths.slice(0, 3))(
      'an object in S3 has its MD5 as ETag, and the two were compared (%s)',
      async (_, length, declared) => {
        const bytes = bytesOf(length);
        const stored = await ground.storage.put('proven', streaming(bytes), { bytes: declared });
        expect(stored).toMatchObject({ etag: md5(bytes), checksums: { md5: md5(bytes) } });
      },
    );
  });

  describe('S3_CHECKSUMS', () => {
    const opened: Storage[] = [];
    const open = async (checksums: 'crc32' | 'crc64nvme' | 'md5-etag' | 'none' | 'auto') => {
      const storage = await openBucket(s3, { bucket: ground.bucket, checksums });
      opened.push(storage);
      return storage;
    };
    afterAll(() => Promise.all(opened.map((storage) => storage.close())));

    test.each(['none', 'md5-etag', 'auto'] as const)('S3_CHECKSUMS=%s works with this store', async (checksums) => {
      const storage = await open(checksums);
      await storage.check();
      const stored = await storage.put('checked', streaming(bytesOf(MiB)), { bytes: MiB });
      expect(Object.keys(stored.checksums)).toEqual(
        checksums === 'none' ? ['crc32', 'sha256'] : ['crc32', 'md5', 'sha256'],
      );
    });

    test.each(['crc32', 'crc64nvme'] as const)(
      'S3_CHECKSUMS=%s, which this store does not support, is reported before anything is lost',
      async (checksums) => {
        const storage = await open(checksums);
        await expect(storage.check()).rejects.toThrow(/accepts no checksum after a stream; set S3_CHECKSUMS/);
        const body = streaming(bytesOf(MiB));
        await expect(storage.put('trailer', body, { bytes: MiB })).rejects.toBeInstanceOf(StorageUnavailable);
        expect(body.destroyed).toBe(true);
        expect(await storage.head('trailer')).toBeUndefined();
      },
    );
  });

  describe('causes that make the whole store unavailable', () => {
    const expectUnavailable = async (storage: Storage, message: RegExp) => {
      for (const attempt of [
        () => storage.check(),
        () => storage.put('fault', 'text'),
        ...lengths.map(
          ([, length, bytes]) =>
            () =>
              storage.put('fault', streaming(bytesOf(length)), { bytes }),
        ),
        () => Array.fromAsync(storage.list('')),
        () => storage.get('fault'),
      ]) {
        const error = await attempt().then(
          () => undefined,
          (reason) => reason,
        );
        expect(error).toBeInstanceOf(StorageUnavailable);
        expect(error.message).toMatch(message);
        expect(error.message).toContain(storage.name);
      }
    };

    test('a bucket that does not exist makes the store unavailable until it exists', async () => {
      const bucket = `missing-${Date.now()}`;
      const storage = await openBucket(s3, { bucket });
      await expectUnavailable(storage, /the bucket does not exist/);
      await ground.raw.send(new CreateBucketCommand({ Bucket: bucket }));
      await storage.check();
      await storage.put('fault', 'text');
      await removeBucket(ground.raw, bucket);
      await expectUnavailable(storage, /the bucket does not exist/);
      await ground.raw.send(new CreateBucketCommand({ Bucket: bucket }));
      await storage.check();
      await ground.raw.send(new DeleteBucketCommand({ Bucket: bucket }));
      await storage.close();
    });

    test.each([
      ['a wrong secret key', { secretKey: 'not it' }, /refuses the signature; check the secret key/],
      ['an unknown access key', { accessKey: 'nobody' }, /does not know the access key/],
    ])('%s makes the store unavailable', async (_, wrong, message) => {
      const storage = await openBucket({ ...s3, ...wrong }, { bucket: ground.bucket });
      await expectUnavailable(storage, message);
      await storage.close();
      const right = await openBucket(s3, { bucket: ground.bucket });
      await right.check();
      await right.close();
    });

    test('an endpoint where nothing listens makes the store unavailable', async () => {
      const endpoint = `http://127.0.0.1:${await freePort()}`;
      const storage = await openBucket(s3, { bucket: ground.bucket, endpoint });
      await expectUnavailable(
        storage,
        /nothing listens at 127\.0\.0\.1:\d+ \(ECONNREFUSED\); start the server there, or correct S3_ENDPOINT$/,
      );
      await storage.close();
    });

    test('an endpoint without a host name for each bucket is reported with S3_FORCE_PATH_STYLE', async () => {
      const endpoint = 'http://store.invalid';
      const storage = await openBucket(s3, { bucket: ground.bucket, endpoint, forcePathStyle: false });
      const message = `the host name ${ground.bucket}.store.invalid cannot be resolved \\(ENOTFOUND\\); correct S3_ENDPOINT, or the name server, or set S3_FORCE_PATH_STYLE=true`;
      await expectUnavailable(storage, new RegExp(message));
      await storage.close();
    });

    test('https:// to a port that speaks http makes the store unavailable', async () => {
      const endpoint = s3.endpoint.replace('http:', 'https:');
      const storage = await openBucket(s3, { bucket: ground.bucket, endpoint });
      await expectUnavailable(
        storage,
        /does not speak TLS there \(\w+\); correct the scheme or the port in S3_ENDPOINT/,
      );
      expect(reasonOf(await storage.check().catch((error) => error))).not.toMatch(/openssl|SSL routines/i);
      await storage.close();
    });

    test('a certificate of an unknown authority makes the store unavailable', async () => {
      const certificates = await newCertificates();
      const front = await newTlsFront(certificates, s3.endpoint);
      const storage = await openBucket(s3, { bucket: ground.bucket, endpoint: `https://localhost:${front.port}` });
      try {
        await expectUnavailable(storage, /from an unknown authority \(\w+\); set NODE_EXTRA_CA_CERTS/);
      } finally {
        await storage.close();
        await front.close();
        await certificates.clear();
      }
    });

    test('an endpoint whose host name cannot be resolved makes the store unavailable', async () => {
      const endpoint = 'http://no-such-host.invalid';
      const storage = await openBucket(s3, { bucket: ground.bucket, endpoint });
      await expect(storage.check()).rejects.toThrow(/the host name .*no-such-host.invalid cannot be resolved/);
      await storage.close();
    });
  });

  describe('a faulty network', () => {
    let line: Awaited<ReturnType<typeof newLine>>;
    let storage: Storage;
    beforeAll(async () => {
      line = await newLine(s3.endpoint);
      storage = await openBucket(s3, { bucket: ground.bucket, endpoint: line.endpoint });
      await storage.check();
    });
    afterAll(async () => {
      await storage?.close();
      await line?.close();
    });
    afterEach(() => line.set({}));

    /** `put` fails, leaves nothing, releases the body and its sockets, and works again on a good connection. */
    async function expectFailure(
      trouble: Trouble,
      length: number,
      declared: number | undefined,
      body = streaming(bytesOf(length)),
    ) {
      await ground.storage.put('line', 'old');
      line.set(trouble);
      const error = await storage.put('line', body, { bytes: declared }).then(
        () => undefined,
        (reason) => reason,
      );
      expect(error).toBeInstanceOf(Error);
      expect(body.destroyed).toBe(true);
      line.set({});
      await until('its sockets closed', () => line.troubled === 0);
      expect(await ground.storage.head('line')).toMatchObject({ bytes: 3 });
      await storage.put('line', streaming(bytesOf(length)), { bytes: declared });
      return error;
    }

    test.each(lengths.slice(1))(
      'a connection that drops in the middle of a body fails this put only (%s)',
      { tags: 'slow' },
      async (_, length, declared) => {
        // Undeclared bytes go in parts of 16 MiB from memory, which the SDK sends again: so every attempt must drop.
        const error = await expectFailure(
          {
            request(chunk, sent, { client, server }) {
              if (sent + chunk.length < length / 10) return chunk;
              client.destroy();
              server.destroy();
              return undefined;
            },
          },
          length,
          declared,
        );
        expect(error).not.toBeInstanceOf(StorageUnavailable);
      },
    );

    test.each(lengths.slice(0, 3))(
      'a connection that drops before the answer is retried or reported (%s)',
      async (_, length, declared) => {
        await ground.storage.remove('line');
        const body = streaming(bytesOf(length));
        line.set({
          response(chunk, { client }) {
            if (/^HTTP\/1.1 100/.test(chunk.toString('latin1'))) return chunk;
            client.destroy();
            return undefined;
          },
        });
        await expect(storage.put('line', body, { bytes: declared })).rejects.toThrow();
        expect(body.destroyed).toBe(true);
        line.set({});
        // The store has the whole object although the answer was lost: the next put works as usual.
        const stored = await storage.put('line', 'again');
        expect(stored.bytes).toBe(5);
      },
    );

    test.each(lengths.slice(0, 3))(
      'an error that is answered before the body was sent is reported (%s)',
      async (_, length, declared) => {
        const error = await expectFailure(
          {
            request(_chunk, sent, { client }) {
              if (sent === 0) client.write(errorAnswer('403 Forbidden', 'AccessDenied'));
              return undefined;
            },
          },
          length,
          declared,
          streaming(bytesOf(length / 2), () => new Promise(() => {}), length / 20),
        );
        expect(error).toBeInstanceOf(StorageUnavailable);
        expect(error.message).toMatch(/denies access/);
      },
    );

    test.each([
      ['503 Slow Down', 'SlowDown'],
      ['503 Service Unavailable', 'ServiceUnavailable'],
      ['429 Too Many', 'TooManyRequests'],
    ])('a store that answers %s is called again later', async (status, code) => {
      const error = await expectFailure(
        {
          request(_chunk, sent, { client }) {
            if (sent === 0) client.end(errorAnswer(status, code));
            return undefined;
          },
        },
        MiB,
        MiB,
      );
      expect(error).toBeInstanceOf(RetryLater);
      expect(error.waitMs).toBeGreaterThan(0);
    });

    test('an error answer ends a put although its body of 8 MiB is still being sent', async () => {
      let drained = 0;
      const error = await expectFailure(
        {
          request(chunk, sent, { client }) {
            drained += chunk.length;
            if (sent === 0) client.write('HTTP/1.1 100 Continue\r\n\r\n');
            if (sent > 2 * MiB && drained < 4 * MiB) client.write(errorAnswer('507 Insufficient Storage', 'Full'));
            if (sent > 2 * MiB) drained = 4 * MiB;
            return undefined;
          },
        },
        8 * MiB,
        8 * MiB,
      );
      expect(error.message).toMatch(/the store is full/);
    });

    test('a success that is answered before the whole body was sent is an error', async () => {
      const waits = Promise.withResolvers<void>();
      const body = streaming(bytesOf(MiB), () => waits.promise);
      line.set({
        request(_chunk, sent, { client }) {
          if (sent === 0) client.write(answer('200 OK', '', 'etag: "00000000000000000000000000000000"\r\n'));
          return undefined;
        },
      });
      await expect(storage.put('early', body, { bytes: MiB })).rejects.toThrow(/answered before it had the whole body/);
      waits.resolve();
      expect(await ground.storage.head('early')).toBeUndefined();
      await until('its sockets closed', () => line.troubled === 0);
    });

    test.each(lengths)(
      'bytes that were changed in transit are noticed, and do not stay (%s)',
      async (_, length, declared) => {
        await ground.storage.put('line', 'old');
        const bytes = Buffer.alloc(length, 'x');
        line.set({
          request(chunk) {
            // Only a body has that many equal bytes, not headers.
            const at = chunk.lastIndexOf('xxxxxxxxxxxxxxxxxxxx');
            if (at >= 0) chunk[at] = 'y'.charCodeAt(0);
            return chunk;
          },
        });
        await expect(storage.put('line', streaming(bytes), { bytes: declared })).rejects.toThrow();
        const found = await ground.storage.get('line');
        // Bodies in parts are signed, so the store refuses them by itself; streams are not, and are removed after the check.
        if (found) expect((await collected(found)).toString()).toBe('old');
        expect(await ground.leftovers()).toEqual([]);
      },
    );

    test.each(lengths)('an abort ends a put although the store is silent (%s)', async (_, length, declared) => {
      let asked = false;
      line.set({
        request() {
          asked = true;
          return undefined;
        },
      });
      const stop = new AbortController();
      const reason = new Error('enough');
      // The creation of an upload is not aborted; here it gets no answer.
      const direct = declared !== undefined;
      const body = streaming(bytesOf(length));
      const put = storage.put('silent', body, { bytes: declared, signal: stop.signal }).catch((error) => error);
      await until('the store asked', () => asked);
      stop.abort(reason);
      if (!direct) line.cut();
      line.set({});
      expect(await put).toBe(reason);
      expect(body.destroyed).toBe(true);
      await until('its sockets closed', () => line.troubled === 0);
      expect(await ground.storage.head('silent')).toBeUndefined();
      await until('its parts removed', async () => (await ground.leftovers()).length === 0);
    });

    test('an abort ends an upload without waiting for its parts', async () => {
      let parts = 0;
      line.set({
        request(chunk) {
          if (/^PUT .*partNumber=/.test(chunk.subarray(0, 2 * KiB).toString('latin1'))) parts++;
          return parts && !/^DELETE/.test(chunk.subarray(0, 6).toString('latin1')) ? undefined : chunk;
        },
      });
      const stop = new AbortController();
      const reason = new Error('enough');
      const put = storage.put('parts', streaming(bytesOf(40 * MiB)), { signal: stop.signal }).catch((error) => error);
      await until('parts under way', () => parts > 0);
      const at = Date.now();
      stop.abort(reason);
      expect(await put).toBe(reason);
      // None of them fails before the store has been silent for long.
      expect(Date.now() - at).toBeLessThan(20_000);
      line.cut();
      line.set({});
      await until('its parts removed', async () => (await ground.leftovers()).length === 0);
    });

    test('a refused part ends the upload at once, not at the end of the body', async () => {
      line.set({
        request(chunk, _sent, { client }) {
          if (!/^PUT .*partNumber=1/.test(chunk.subarray(0, 2 * KiB).toString('latin1'))) return chunk;
          client.end(errorAnswer('403 Forbidden', 'AccessDenied'));
          return undefined;
        },
      });
      let taken = 0;
      const endless = streaming(Buffer.alloc(600 * MiB)).on('data', (chunk) => {
        taken += chunk.length;
      });
      endless.pause();
      await expect(storage.put('refused', endless)).rejects.toThrow(/denies access/);
      expect(taken).toBeLessThan(300 * MiB);
      expect(await ground.leftovers()).toEqual([]);
    });

    describe.each<[string, Trouble]>([
      [
        'drops every connection',
        {
          request(_chunk, _sent, { client }) {
            client.resetAndDestroy();
            return undefined;
          },
        },
      ],
      [
        'accepts requests and never answers',
        {
          response(_chunk, { client }) {
            client.destroy();
            return undefined;
          },
        },
      ],
      [
        'does not answer in HTTP',
        {
          response(_chunk, { client }) {
            client.end('what?\r\n\r\n');
            return undefined;
          },
        },
      ],
    ])('a store that %s', (_, trouble) => {
      test.each([
        ['put', () => storage.put('line', 'text')],
        ...lengths.map(
          ([what, length, bytes]) =>
            [`put ${what}`, () => storage.put('line', streaming(bytesOf(length)), { bytes })] as const,
        ),
        ['get', () => storage.get('line')],
        ['head', () => storage.head('line')],
        ['list', () => Array.fromAsync(storage.list(''))],
        ['remove', () => storage.remove('line')],
        ['check', () => storage.check()],
      ] as [string, () => Promise<unknown>][])(
        'a store without an answer makes all assets wait (%s)',
        async (what, call) => {
          line.set(trouble);
          const error = await call().then(
            () => undefined,
            (reason) => reason,
          );
          expect(error).toBeInstanceOf(StorageUnavailable);
          expect(error.scope).toBe('all');
          if (what !== 'check') expect(error.message).toMatch(/the store does not answer/);
        },
      );
    });

    test.each(lengths.slice(1, 3))(
      'a connection that drops once fails only that call, which may be repeated (%s)',
      async (_, length, declared) => {
        let drops = 1;
        line.set({
          request(chunk, sent, { client, server }) {
            if (sent < length / 2 || drops-- <= 0) return chunk;
            client.resetAndDestroy();
            server.destroy();
            return undefined;
          },
        });
        const error = await storage
          .put('line', streaming(bytesOf(length)), { bytes: declared })
          .catch((reason) => reason);
        expect(error).not.toBeInstanceOf(StorageUnavailable);
        expect(isTemporary(error)).toBe(true);
      },
    );

    test('an abort ends the wait while the mirror finds out whether the store answers', async () => {
      let asked = 0;
      line.set({
        request(chunk, _sent, { client }) {
          if (/^PUT/.test(chunk.toString('latin1'))) client.resetAndDestroy();
          else asked++;
          return undefined;
        },
      });
      const stop = new AbortController();
      const put = storage.put('line', streaming(bytesOf(MiB)), { bytes: MiB, signal: stop.signal });
      const error = put.catch((reason) => reason);
      await until('the store to be asked', () => asked > 0);
      stop.abort(new Error('enough'));
      expect(await error).toMatchObject({ code: 'ECONNRESET' });
      line.cut();
    });

    test.each([
      ['400 Bad Request', 'EntityTooLarge', Rejected, /larger than the store accepts/],
      ['400 Bad Request', 'KMS.DisabledException', StorageUnavailable, /cannot use the encryption key/],
    ] as const)('%s %s is reported by its meaning', async (status, code, kind, message) => {
      const error = await expectFailure(
        {
          request(_chunk, sent, { client }) {
            if (sent === 0) client.end(errorAnswer(status, code));
            return undefined;
          },
        },
        MiB,
        MiB,
      );
      expect(error).toBeInstanceOf(kind);
      expect(error.message).toMatch(message);
    });

    test('a body that is read is as long as the object, or ends with an error', async () => {
      await ground.storage.put('long', bytesOf(8 * MiB));
      let passed = 0;
      line.set({
        response(chunk, { client }) {
          passed += chunk.length;
          if (passed < 4 * MiB) return chunk;
          client.destroy();
          return undefined;
        },
      });
      const stream = await storage.get('long');
      await expect(collected(stream!)).rejects.toThrow();
    });

    test('a failure is reported as an error only, not on the console', async () => {
      const spies = [vi.spyOn(console, 'warn'), vi.spyOn(console, 'error'), vi.spyOn(console, 'log')];
      await expectFailure({ request: (_chunk, _sent, { client }) => void client.destroy() }, MiB, MiB);
      for (const spy of spies) {
        expect(spy).not.toHaveBeenCalled();
        spy.mockRestore();
      }
    });
  });

  test('no socket stays open after the store was closed', async () => {
    const line = await newLine(s3.endpoint);
    const storage = await openBucket(s3, { bucket: ground.bucket, endpoint: line.endpoint });
    await storage.check();
    await storage.put('close', streaming(bytesOf(8 * MiB)), { bytes: 8 * MiB });
    await storage.close();
    await until('all sockets closed', () => line.open === 0);
    await line.close();
  });
});
