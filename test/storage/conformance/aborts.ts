import { once } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { until } from '../../support/until.ts';
import { bytesOf, collected, MiB, streaming } from '../bodies.ts';
import { type Ground, readFrom } from './ground.ts';

const reason = new Error('enough');
const isReason = (error: unknown) => error === reason;

/** The guarantees of a call that is aborted. */
export function aborts(open: () => Ground): void {
  describe('an abort', () => {
    abortedPuts(open);
    abortedReads(open);
  });
}

function abortedPuts(open: () => Ground): void {
  test('an abort before a put begins leaves the body unread', async () => {
    const { storage } = open();
    const body = streaming(bytesOf(100));
    const put = storage.put('an abort', body, { bytes: 100, signal: AbortSignal.abort(reason) });
    await expect(put).rejects.toSatisfy(isReason);
    expect(body.destroyed).toBe(true);
    expect(await storage.head('an abort')).toBeUndefined();
  });

  test.each([
    ['100 bytes', 100, 50],
    ['8 MiB', 8 * MiB, 4 * MiB],
    ['unknown, small', undefined, 1000],
    ['unknown, in parts', undefined, 40 * MiB],
  ])('an abort during a put rejects it at once and leaves nothing behind (length: %s)', async (_, declared, sent) => {
    const { storage } = open();
    const stop = new AbortController();
    const body = streaming(bytesOf(sent), async () => {
      stop.abort(reason);
      await new Promise(() => {});
    });
    const put = storage.put('an abort', body, { bytes: declared, signal: stop.signal });
    await expect(put).rejects.toSatisfy(isReason);
    expect(body.destroyed).toBe(true);
    expect(await storage.head('an abort')).toBeUndefined();
    await until('nothing is left of it', async () => (await open().leftovers()).length === 0);
  });

  test('an abort at any moment of a put leaves a whole object, or rejects with its reason', {
    tags: 'slow',
  }, async () => {
    const { storage } = open();
    const bytes = bytesOf(3 * MiB);
    for (let moment = 0; moment < 60; moment++) {
      const key = `moment/${moment}`;
      const stop = new AbortController();
      const put = storage.put(key, streaming(bytes), {
        bytes: moment % 2 ? bytes.length : undefined,
        signal: stop.signal,
      });
      const outcome = put.then(
        () => 'stored',
        (error) => error,
      );
      for (let i = 0; i < moment * 2; i++) await setImmediate();
      stop.abort(reason);
      const got = await outcome;
      if (got !== 'stored') expect(got).toBe(reason);
      const head = await storage.head(key);
      if (got === 'stored' || head) expect(head).toMatchObject({ bytes: bytes.length });
    }
    await until('nothing is left of it', async () => (await open().leftovers()).length === 0);
  });

  test('an abort after a put has returned changes nothing', async () => {
    const { storage } = open();
    const stop = new AbortController();
    await storage.put('later', streaming(bytesOf(100)), { bytes: 100, signal: stop.signal });
    stop.abort(reason);
    expect(await storage.head('later')).toMatchObject({ bytes: 100 });
  });
}

function abortedReads(open: () => Ground): void {
  test('an abort before get, head or list rejects the call with its reason', async () => {
    const { storage } = open();
    const signal = AbortSignal.abort(reason);
    await storage.put('read', 'x');
    await expect(storage.get('read', { signal })).rejects.toSatisfy(isReason);
    await expect(storage.head('read', { signal })).rejects.toSatisfy(isReason);
    await expect(Array.fromAsync(storage.list('', { signal }))).rejects.toSatisfy(isReason);
    await expect(Array.fromAsync(storage.purge('read', { signal }))).rejects.toSatisfy(isReason);
    expect((await readFrom(storage, 'read'))?.toString()).toBe('x');
  });

  test('an abort while a body is read ends that body', async () => {
    const { storage } = open();
    await storage.put('reading', bytesOf(8 * MiB));
    const stop = new AbortController();
    const stream = (await storage.get('reading', { signal: stop.signal }))!;
    await once(stream, 'readable');
    stop.abort(reason);
    await expect(collected(stream)).rejects.toMatchObject({ name: 'AbortError', cause: reason });
  });
}
