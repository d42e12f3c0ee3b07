import { Cluster } from 'ioredis';
import { type Finding, findingsOn } from '../floor/finding.ts';
import { connectRedis, redisProblem } from './redis.ts';

const { note, ok, wrong } = findingsOn('queue');

/** Checks version, role and eviction policy of Redis. */
export async function* probeQueue(options: { redisUrl: string | undefined }): AsyncGenerator<Finding> {
  if (options.redisUrl === undefined) {
    yield ok('queues', 'no REDIS_URL', 'kept in PostgreSQL');
    return;
  }
  const redis = connectRedis(options.redisUrl, { isOnce: true });
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
      const { found, remedy } = redisProblem(lost ?? error, options.redisUrl);
      yield wrong('Redis', found, remedy);
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
    yield old ? note('Redis', found, 'upgrade to 6.2 or newer') : ok('Redis', found);
    if (fact('role') === 'slave') {
      yield wrong('role', 'a read-only replica', 'point REDIS_URL at the primary');
    }
    const policies = facts('maxmemory_policy');
    const policy = policies.find((one) => one !== 'noeviction') ?? policies[0];
    if (policy === 'noeviction') yield ok('eviction', 'noeviction: jobs stay');
    else {
      const remedy = 'CONFIG SET maxmemory-policy noeviction, or jobs are lost when memory is short';
      yield policy ? wrong('eviction', policy, remedy) : note('eviction', 'unknown', remedy);
    }
  } finally {
    redis.disconnect();
  }
}
