import { Cluster, Redis } from 'ioredis';
import { parseRedisUrl } from '../config/redis-address.ts';

/** A primary that became a replica says so: then the connection is made again, to who is the primary now. */
const moved = (error: Error) => (error.message.startsWith('READONLY') ? 2 : false);

export interface RedisOptions {
  /** Null: as often as it takes. */
  maxRetriesPerRequest: number | null;
  /** Milliseconds. */
  connectTimeout?: number;
  commandTimeout?: number;
  lazyConnect?: boolean;
  /** Whether a connection that fails is tried again. */
  retry?: boolean;
}

/**
 * A client of the Redis that REDIS_URL names: one server, the primary that sentinels know of, or a cluster. Certificates are
 * held against the authorities that Node.js knows (NODE_EXTRA_CA_CERTS adds to them).
 */
export function connectRedis(url: string, options: RedisOptions): Redis | Cluster {
  const { retry = true, lazyConnect = false, ...rest } = options;
  const common = { reconnectOnError: moved, ...rest };
  const once = retry ? {} : { retryStrategy: () => null, sentinelRetryStrategy: () => null };
  const address = parseRedisUrl(url);
  if (!address) return new Redis(url, { ...common, ...once, lazyConnect });

  const { nodes, username, password, tls, database, sentinel } = address;
  const account = { ...(username && { username }), ...(password && { password }), ...(tls && { tls: {} }) };
  if (!sentinel) {
    return new Cluster(nodes, {
      lazyConnect,
      redisOptions: { ...common, ...account },
      // Names are left to each connection, which holds the certificate against them.
      dnsLookup: (host, callback) => callback(null, host),
      ...(!retry && { clusterRetryStrategy: () => null }),
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
