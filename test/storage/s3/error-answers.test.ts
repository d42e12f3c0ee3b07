import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { Rejected, RetryLater, StorageUnavailable } from '../../../src/floor/errors.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { until } from '../../support/until.ts';
import { bytesOf, KiB, lengths, MiB, streaming } from '../bodies.ts';
import { type FaultyStore, newFaultyStore } from './faulty-store.ts';

const s3 = inject('s3')!;

const answer = (status: string, body = '', headers = '') =>
  Buffer.from(`HTTP/1.1 ${status}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`);
const errorAnswer = (status: string, code: string) =>
  answer(status, `<?xml version="1.0"?><Error><Code>${code}</Code><Message>said so</Message></Error>`);

describe.runIf(s3)('an S3 store', () => {
  describe('a faulty network', () => {
    let faulty: FaultyStore;
    let ground: FaultyStore['ground'];
    let line: FaultyStore['line'];
    let storage: Storage;
    beforeAll(async () => {
      faulty = await newFaultyStore(s3);
      ({ ground, line, storage } = faulty);
    });
    afterAll(() => faulty?.close());
    afterEach(() => line.set({}));

    test.each(lengths.slice(0, 3))(
      'an error that is answered before the body was sent is reported (%s)',
      async (_, length, declared) => {
        const error = await faulty.expectFailure(
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
      const error = await faulty.expectFailure(
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
      const error = await faulty.expectFailure(
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

    test.each([
      ['400 Bad Request', 'EntityTooLarge', Rejected, /larger than the store accepts/],
      ['400 Bad Request', 'KMS.DisabledException', StorageUnavailable, /cannot use the encryption key/],
    ] as const)('%s %s is reported by its meaning', async (status, code, kind, message) => {
      const error = await faulty.expectFailure(
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
  });
});
