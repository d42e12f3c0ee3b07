import { describe, expect, test, vi } from 'vitest';
import { RetryLater } from '../../src/floor/errors.ts';
import { createOutageDetector } from '../../src/pacing/outage.ts';
import { HttpError } from '../../src/source/http.ts';
import { newScene } from '../support/scene.ts';
import { until } from '../support/until.ts';

describe('outage detection', () => {
  const reset = () => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
  /** Fails at a target for an asset; returns whether that is an outage. */
  async function fails(
    outages: ReturnType<typeof createOutageDetector>,
    place: 'api' | 'links',
    id: string,
    error: Error = reset(),
  ) {
    await outages.watch(place, () => Promise.reject(error)).catch(() => {});
    return outages.recordFailure(error, id);
  }

  test('an outage begins when five assets in a row fail, and ends with an answer', async () => {
    const outages = createOutageDetector();
    for (let i = 0; i < 10; i++) expect(await fails(outages, 'links', 'the same')).toBe(false);
    for (const id of ['b', 'c', 'd']) expect(await fails(outages, 'links', id)).toBe(false);
    expect(await fails(outages, 'links', 'e')).toBe(true);
    expect(await fails(outages, 'links', 'the same')).toBe(true);
    expect(await fails(outages, 'api', 'f')).toBe(false);
    await outages.watch('links', async () => 'a file');
    expect(await fails(outages, 'links', 'the same')).toBe(false);
  });

  test('an outage of the API also begins after three minutes without an answer, however few requests there are', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const outages = createOutageDetector();
      for (const [minutes, general] of [
        [0, false],
        [2, false],
        [1, true],
        [60, true],
      ] as const) {
        vi.advanceTimersByTime(minutes * 60_000);
        expect(await fails(outages, 'api', 'the only one')).toBe(general);
      }
      await outages.watch('api', async () => 'a page');
      expect(await fails(outages, 'api', 'the only one')).toBe(false);
      vi.advanceTimersByTime(3_600_000);
      expect(await fails(outages, 'links', 'the only one')).toBe(false);
      vi.advanceTimersByTime(3_600_000);
      expect(await fails(outages, 'links', 'the only one')).toBe(false);
    } finally {
      vi.useRealTimers();
    }
  });

  test('any answer ends an outage, also a refusal or a wait; an abort is no answer', async () => {
    const outages = createOutageDetector();
    for (const id of ['a', 'b', 'c', 'd']) await fails(outages, 'links', id);
    await fails(outages, 'links', 'x', new DOMException('stop', 'AbortError'));
    await fails(outages, 'links', 'x', new RetryLater({ code: 'connection_waits' }, 0));
    expect(await fails(outages, 'links', 'e')).toBe(true);
    const asked = { code: 'asked_to_wait', request: 'read', status: 429, askedMs: 0 } as const;
    await fails(outages, 'links', 'y', new HttpError('download', 403));
    expect(await fails(outages, 'links', 'e')).toBe(false);
    for (const id of ['a', 'b', 'c', 'd']) await fails(outages, 'links', id);
    await fails(outages, 'links', 'y', new RetryLater(asked, 0));
    expect(await fails(outages, 'links', 'e')).toBe(false);
  });

  test('an API request that fails while a link is renewed does not count for an outage of the links', async () => {
    const outages = createOutageDetector();
    const renewed = async (id: string) => {
      const error = reset();
      await outages.watch('links', () => outages.watch('api', () => Promise.reject(error))).catch(() => {});
      return outages.recordFailure(error, id);
    };
    for (const id of ['a', 'b', 'c', 'd']) expect(await renewed(id)).toBe(false);
    expect(await fails(outages, 'links', 'e')).toBe(false);
    expect(await renewed('e')).toBe(true);
  });

  test('an outage of the API for one connection lasts although other connections get answers', async () => {
    const outages = createOutageDetector();
    const failsFor = async (connectionId: string, id: string) => {
      const error = reset();
      await outages.watch('api', () => Promise.reject(error), connectionId).catch(() => {});
      return outages.recordFailure(error, id);
    };
    const answeredFor = (connectionId: string) => outages.watch('api', async () => 'an answer', connectionId);
    for (const id of ['a', 'b', 'c', 'd']) {
      expect(await failsFor('one', id)).toBe(false);
      await answeredFor('two');
    }
    expect(await failsFor('one', 'e')).toBe(true);
    expect(await failsFor('two', 'f')).toBe(false);
    await answeredFor('one');
    expect(await failsFor('one', 'a')).toBe(false);
  });

  test("an error other than of the network is the asset's own, and begins no outage", async () => {
    const outages = createOutageDetector();
    for (const id of ['a', 'b', 'c', 'd', 'e', 'f']) {
      expect(await fails(outages, 'links', id, new Error('wrong size'))).toBe(false);
    }
  });
});

test.each(['asset', 'media'] as const)(
  'in an outage (%s), assets wait with the reason and spend no attempt',
  { tags: 'slow', timeout: 240_000 },
  async (endpoint) => {
    const scene = await newScene();
    try {
      await scene.admin.addFault({ endpoint, status: 502 });
      const ids = await Promise.all(Array.from({ length: 12 }, () => scene.upload()));
      await scene.resync();
      const waiting = async () => {
        const { assets } = await scene.mirror.api('GET', '/assets?state=pending&limit=100');
        return assets.filter((asset: { reason: { code: string; text: string } | null }) =>
          asset.reason?.text.endsWith('other requests fail, too'),
        );
      };
      await until('some of them to be put off', async () => (await waiting()).length >= 2);
      await scene.admin.clearFaults();
      for (const id of ids) {
        expect((await scene.mirror.assetIn(id, 'mirrored')).attempts).toBe(0);
      }
    } finally {
      await scene.close();
    }
  },
);
