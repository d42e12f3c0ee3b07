/** A Redis of several servers, as REDIS_URL gives it. */
export interface RedisAddress {
  kind: 'sentinel' | 'cluster';
  tls: boolean;
  /** The sentinels, or some nodes of the cluster, which know the others. */
  nodes: { host: string; port: number }[];
  username?: string;
  password?: string;
  /** Always 0 for a cluster. */
  database: number;
  sentinel?: { master: string; username?: string; password?: string };
}

const schemes: Record<string, Pick<RedisAddress, 'kind' | 'tls'> & { port: number }> = {
  'redis-sentinel': { kind: 'sentinel', tls: false, port: 26379 },
  'rediss-sentinel': { kind: 'sentinel', tls: true, port: 26379 },
  'redis-cluster': { kind: 'cluster', tls: false, port: 6379 },
  'rediss-cluster': { kind: 'cluster', tls: true, port: 6379 },
};

/**
 * `redis-sentinel://user:password@host,host/0#master` (as Lettuce has it) or `redis-cluster://user:password@host,host`;
 * with `rediss` for TLS. User and password are those of the servers, percent-encoded; those of the sentinels are
 * `?sentinelUsername=` and `&sentinelPassword=`. Undefined if it is neither.
 */
export function parseRedisUrl(url: string): RedisAddress | undefined {
  const found = /^([a-z-]+):\/\/(?:([^@/?#]*)@)?([^@/?#]+)(?:\/(\d{0,4}))?(?:\?([^#]*))?(?:#(.+))?$/i.exec(url);
  if (!found) return undefined;
  const [, name, account = '', hosts, database, query = '', master] = found;
  const scheme = schemes[name!.toLowerCase()];
  if (!scheme) return undefined;
  const { kind, tls } = scheme;
  const nodes = hosts!.split(',').map((host) => parseHost(host, scheme.port));
  if (!nodes.every((node) => node !== undefined)) return undefined;
  if ((kind === 'sentinel') !== (master !== undefined)) return undefined;
  if (kind === 'cluster' && Number(database || 0) !== 0) return undefined;
  const parameters = new URLSearchParams(query);
  const known = kind === 'sentinel' ? ['sentinelUsername', 'sentinelPassword'] : [];
  if ([...parameters.keys()].some((key) => !known.includes(key))) return undefined;
  try {
    const [username, password] = account.split(/:(.*)/s).map(decodeURIComponent);
    const own = (which: string) => parameters.get(which) || undefined;
    return {
      kind,
      tls,
      nodes,
      ...(username && { username }),
      ...(password && { password }),
      database: Number(database || 0),
      ...(master && {
        sentinel: {
          master: decodeURIComponent(master),
          ...(own('sentinelUsername') && { username: own('sentinelUsername')! }),
          ...(own('sentinelPassword') && { password: own('sentinelPassword')! }),
        },
      }),
    };
  } catch {
    return undefined;
  }
}

function parseHost(text: string, fallback: number): { host: string; port: number } | undefined {
  const found = /^(\[[\da-f:.]+\]|[\w.-]+)(?::(\d{1,5}))?$/i.exec(text.trim());
  const port = Number(found?.[2] ?? fallback);
  if (!found || port < 1 || port > 65_535) return undefined;
  return { host: found[1]!.replace(/^\[|\]$/g, ''), port };
}
