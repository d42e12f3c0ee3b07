import type { Cluster, Redis } from 'ioredis';
import { afterEach, describe, expect, inject, test } from 'vitest';
import { ConfigurationError } from '../../src/errors.ts';
import { type Claim, createClaim } from '../../src/jobs/claim.ts';
import { connectRedis } from '../../src/jobs/redis.ts';
import { silent } from '../store/records.ts';
import { startTestLibrary } from '../support/library.ts';
import { newGround, newRedis, startMirror } from '../support/mirror.ts';
import { freePort } from '../support/ports.ts';
import { until } from '../support/until.ts';

const key = '{asset-mirror}:owner';
const open: { claim: Claim; redis: Redis | Cluster }[] = [];
afterEach(() => {
  for (const { claim, redis } of open.splice(0)) {
    claim.stop();
    redis.disconnect();
  }
});

/** What a process has. */
function process(url: string, ms?: number) {
  const redis = connectRedis(url, { maxRetriesPerRequest: null });
  redis.on('error', () => {});
  const claim = createClaim({ redis, log: silent, ...(ms && { ms }) });
  open.push({ claim, redis });
  return { claim, redis };
}

describe.skipIf(!inject('redis'))('a Redis', () => {
  test('is that of one mirror with all its processes, and of another when none of these is left', async () => {
    const url = await newRedis(inject('redis')!);
    const [first, second, other, later] = [process(url, 900), process(url, 900), process(url, 900), process(url, 900)];
    await first.claim.hold('one');
    await second.claim.hold('one');
    first.claim.stop();
    await expect(other.claim.hold('two')).rejects.toThrow(ConfigurationError);
    expect(() => other.claim.check()).toThrow(
      /^REDIS_URL is that of another mirror.* \(its records are one, these are two\); expected a Redis of its own, or another/,
    );
    expect(() => second.claim.check()).not.toThrow();
    second.claim.stop();
    await later.claim.hold('two');
    expect(await later.redis.get(key)).toBe('two');
    later.claim.check();
  });

  test('that another has taken meanwhile is told by the check, and taken back when it is free', async () => {
    const { claim, redis } = process(await newRedis(inject('redis')!), 300);
    await claim.hold('one');
    await redis.set(key, 'two');
    const isForeign = () => {
      try {
        claim.check();
        return false;
      } catch {
        return true;
      }
    };
    await until('that to be seen', isForeign);
    await redis.del(key);
    await until('it to be taken back', async () => !isForeign() && (await redis.get(key)) === 'one');
  });

  test('of another mirror keeps this one from starting', async () => {
    const port = await freePort();
    const ground = await newGround({ port, redis: inject('redis') });
    const { library } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] });
    try {
      await process(ground.environment.REDIS_URL!).redis.set(key, 'another');
      await expect(startMirror(ground, library, 'web')).rejects.toThrow(/REDIS_URL is that of another mirror/);
      await process(ground.environment.REDIS_URL!).redis.del(key);
      await (await startMirror(ground, library, 'web')).stop();
    } finally {
      await library.close();
      await ground.clear();
    }
  });
});

test('a Redis that is away keeps nobody from starting', async () => {
  const { claim } = process(`redis://127.0.0.1:${await freePort()}`);
  await claim.hold('one');
  claim.check();
});
