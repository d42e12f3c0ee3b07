import { Cluster, Redis } from 'ioredis';
import { parseRedisUrl } from '../config/redis-address.ts';
import { reasonOf } from '../floor/errors.ts';
import { networkProblem } from '../floor/network-problem.ts';

/**
 * After a failover the old primary answers READONLY: reconnect to the new primary, and resend the command. Redis 6 has the word
 * inside a longer text if a script failed.
 */
export const moved = (error: Error) => (/\bREADONLY\b/.test(error.message) ? 2 : false);

/**
 * A connection that is silent for this long while commands wait for their answers is opened again. Otherwise, after the host has died,
 * it would hang until TCP gives up, which takes about 15 minutes. Longer than BullMQ's blocking reads of 10 s.
 */
const silentMs = 30_000;

/** A client that connects only when asked, and fails after 10 s instead of trying again. */
const onceOptions = {
  lazyConnect: true,
  maxRetriesPerRequest: 0,
  connectTimeout: 10_000,
  commandTimeout: 10_000,
};

/**
 * A client for REDIS_URL: one server, the primary behind sentinels, or a cluster. Certificates are checked against the
 * authorities of Node.js (NODE_EXTRA_CA_CERTS adds some). It reconnects for ever, unless `isOnce`.
 */
export function connectRedis(url: string, { isOnce = false } = {}): Redis | Cluster {
  // `lazyConnect` is not for `redisOptions`: as false, it would make a cluster connect to each node at once.
  const { lazyConnect, ...rest } = isOnce ? onceOptions : { lazyConnect: false, maxRetriesPerRequest: null };
  const common = { reconnectOnError: moved, socketTimeout: silentMs, ...rest };
  const once = isOnce ? { retryStrategy: () => null, sentinelRetryStrategy: () => null } : {};
  const address = parseRedisUrl(url);
  if (!address) return new Redis(url, { ...common, ...once, lazyConnect });

  const { nodes, username, password, tls, database, sentinel } = address;
  const account = { ...(username && { username }), ...(password && { password }), ...(tls && { tls: {} }) };
  if (!sentinel) {
    return new Cluster(nodes, {
      lazyConnect,
      redisOptions: { ...common, ...account },
      // Each connection resolves the name itself, because the certificate is checked against it.
      dnsLookup: (host, callback) => callback(null, host),
      ...(isOnce && { clusterRetryStrategy: () => null }),
    });
  }
  return new Redis({
    ...common,
    ...once,
    ...account,
    lazyConnect,
    db: database,
    sentinels: nodes,
    name: sentinel.master,
    ...(sentinel.username && { sentinelUsername: sentinel.username }),
    ...(sentinel.password && { sentinelPassword: sentinel.password }),
    ...(tls && { sentinelTLS: {}, enableTLSForSentinelMode: true }),
  });
}

/** Why Redis cannot be used, and what to do. The errors of sentinels and clusters do not have addresses. */
export function redisProblem(error: unknown, url: string): { found: string; remedy: string } {
  const problem = networkProblem(error);
  if (problem) return { found: problem.found, remedy: problem.remedy('REDIS_URL') };
  const found = reasonOf(error);
  if (/NOAUTH|WRONGPASS/.test(found)) return { found, remedy: 'correct the password in REDIS_URL' };
  const nodes = parseRedisUrl(url)?.nodes.map(({ host, port }) => `${host}:${port}`);
  const where = nodes?.join(', ') ?? URL.parse(url)?.host ?? 'it';
  return { found: `no answer from ${where} (${found})`, remedy: 'start the server there, or correct REDIS_URL' };
}
