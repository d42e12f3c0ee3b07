import { afterAll, afterEach, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { StorageUnavailable } from '../../../src/floor/errors.ts';
import { isTemporary } from '../../../src/source/http.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { bytesOf, collected, lengths, MiB, streaming } from '../bodies.ts';
import type { Trouble } from '../line.ts';
import { type FaultyStore, newFaultyStore } from './faulty-store.ts';

const s3 = inject('s3')!;

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

    test.each(lengths.slice(1))(
      'a connection that drops in the middle of a body fails this put only (%s)',
      { tags: 'slow' },
      async (_, length, declared) => {
        // Undeclared bytes go in parts of 16 MiB from memory, which the SDK sends again: so every attempt must drop.
        const error = await faulty.expectFailure(
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
      await faulty.expectFailure({ request: (_chunk, _sent, { client }) => void client.destroy() }, MiB, MiB);
      for (const spy of spies) {
        expect(spy).not.toHaveBeenCalled();
        spy.mockRestore();
      }
    });
  });
});
