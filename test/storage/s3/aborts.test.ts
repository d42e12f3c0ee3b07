import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import { until } from '../../support/until.ts';
import { bytesOf, KiB, lengths, MiB, streaming } from '../bodies.ts';
import { type FaultyStore, newFaultyStore } from './faulty-store.ts';

const s3 = inject('s3')!;

describe.runIf(s3)('an S3 store', () => {
  describe('a faulty network', () => {
    let faulty: FaultyStore;
    let ground: FaultyStore['ground'];
    let line: FaultyStore['line'];
    let storage: Storage;
    // A store for each test: after an abort, the old one may still send requests.
    beforeEach(async () => {
      faulty = await newFaultyStore(s3);
      ({ ground, line, storage } = faulty);
    });
    afterEach(() => faulty?.close());

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

    test('an abort ends the wait while the mirror finds out whether the store answers', async () => {
      let isReset = false;
      let isAsked = false;
      line.set({
        request(chunk, _sent, { client }) {
          if (/^PUT/.test(chunk.toString('latin1'))) {
            isReset = true;
            client.resetAndDestroy();
          } else if (isReset) isAsked = true;
          return undefined;
        },
      });
      const stop = new AbortController();
      const put = storage.put('line', streaming(bytesOf(MiB)), { bytes: MiB, signal: stop.signal });
      const error = put.catch((reason) => reason);
      await until('the store to be asked', () => isAsked);
      stop.abort(new Error('enough'));
      expect(await error).toMatchObject({ code: 'ECONNRESET' });
      line.cut();
    });
  });
});
