import { Cluster } from 'ioredis';
import type { Finding } from '../finding.ts';
import { connectRedis, redisProblem } from './redis.ts';

/** Checks version, role and eviction policy of Redis. */
export async function* probeQueue(options: { redisUrl: string | undefined }): AsyncGenerator<Finding> {
  const area = 'queue' as const;
  if (options.redisUrl === undefined) {
    yield { area, what: 'queues', found: 'no REDIS_URL', chosen: 'kept in PostgreSQL', level: 'ok' };
    return;
  }
  const redis = connectRedis(options.redisUrl, {
    lazyConnect: true,
    retry: false,
    maxRetriesPerRequest: 0,
    connectTimeout: 10_000,
    commandTimeout: 10_000,
  });
  let lost: unknown;
  redis.on('error', (error) => {
    lost = error;
  });
  try {
    let infos: string[];
    try {
      await redis.connect();
      // In a cluster: all primaries.
      infos = await Promise.all(
        (redis instanceof Cluster ? redis.nodes('master') : [redis]).map((node) => node.info()),
      );
    } catch (error) {
      yield { area, what: 'Redis', ...redisProblem(lost ?? error, options.redisUrl), level: 'wrong' };
      return;
    }
    const facts = (name: string) =>
      infos.map((info) => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1] ?? '').sort();
    const fact = (name: string) => facts(name)[0] ?? '';
    const began = performance.now();
    await redis.ping();
    const many = infos.length > 1 ? `, ${infos.length} primaries` : '';
    const found = `${fact('redis_version')}${many}, answers in ${Math.max(1, Math.round(performance.now() - began))} ms`;
    const old = Number.parseFloat(fact('redis_version')) < 6.2;
    const newer = 'upgrade to 6.2 or newer';
    yield { area, what: 'Redis', found, ...(old && { remedy: newer }), level: old ? 'note' : 'ok' };
    if (fact('role') === 'slave') {
      yield {
        area,
        what: 'role',
        found: 'a read-only replica',
        remedy: 'point REDIS_URL at the primary',
        level: 'wrong',
      };
    }
    const policies = facts('maxmemory_policy');
    const policy = policies.find((one) => one !== 'noeviction') ?? policies[0];
    if (policy === 'noeviction') yield { area, what: 'eviction', found: 'noeviction: jobs stay', level: 'ok' };
    else {
      const remedy = 'CONFIG SET maxmemory-policy noeviction, or jobs are lost when memory is short';
      yield { area, what: 'eviction', found: policy || 'unknown', remedy, level: policy ? 'wrong' : 'note' };
    }
  } finally {
    redis.disconnect();
  }
}
