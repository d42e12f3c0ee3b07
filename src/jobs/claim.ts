import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster, Redis } from 'ioredis';
import { ConfigurationError } from '../errors.ts';
import type { Log } from '../log.ts';
import { every } from './every.ts';

/** All queues in a Redis have one prefix, so it is one mirror's: the one whose id stands here, while any of its processes lives. */
const key = '{asset-mirror}:owner';
const claimMs = 30_000;
/** Whoever starts does not wait longer for a Redis that is away. */
const patienceMs = 2000;

const take = `
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return {owner, redis.call('PTTL', KEYS[1])} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {ARGV[1], 0}`;

export type Claim = ReturnType<typeof createClaim>;

/** `id`: that of the records, by which two mirrors are told apart. */
export function createClaim({ redis, log, ms = claimMs }: { redis: Redis | Cluster; log: Log; ms?: number }) {
  const stopping = new AbortController();
  let foreign: ConfigurationError | undefined;
  let answered = false;

  /** Takes it, or keeps it. Another mirror's: how long that still is, milliseconds. */
  async function attempt(id: string): Promise<number | undefined> {
    const [owner, left] = (await redis.eval(take, 1, key, id, ms)) as [string, number];
    answered = true;
    foreign = owner === id ? undefined : refusal(owner, id);
    return owner === id ? undefined : left;
  }

  /** One that nobody keeps any more ends by itself, and is waited for; one that is renewed is somebody's. */
  async function outlive(id: string, signal: AbortSignal): Promise<void> {
    let left = await attempt(id);
    if (left !== undefined) log.warn({ ms: left }, 'this Redis was of another mirror; waiting whether it still is');
    while (left !== undefined) {
      await sleep(Math.min(1000, ms / 10), undefined, { signal }).catch(() => signal.throwIfAborted());
      const now = await attempt(id);
      if (now !== undefined && (now < 0 || now > left)) throw foreign;
      left = now;
    }
  }

  return {
    /**
     * From now on it is kept. Of a Redis that does not answer nothing is known: then it is taken when that is back.
     * @throws ConfigurationError when another mirror works with this Redis
     */
    async hold(id: string, signal?: AbortSignal): Promise<void> {
      const stop = AbortSignal.any([stopping.signal, ...(signal ? [signal] : [])]);
      const outlived = outlive(id, stop).catch((error) => {
        if (error === foreign || stop.aborted) throw error;
        log.warn({ err: error }, 'whose this Redis is could not be asked');
      });
      outlived.catch(() => {});
      const soon = sleep(patienceMs, undefined, { ref: false }).then(() => (answered ? outlived : undefined));
      await Promise.race([outlived, soon]);
      const renew = async () => {
        if ((await attempt(id)) !== undefined) throw foreign;
      };
      const options = { signal: stopping.signal, log, failed: 'Redis is not ours at present', later: true };
      void every(ms / 3, renew, options);
    },

    /** @throws ConfigurationError while it is another mirror's */
    check(): void {
      if (foreign) throw foreign;
    },

    /** It ends by itself: other processes of this mirror may still keep it. */
    stop(): void {
      stopping.abort();
    },
  };
}

const refusal = (owner: string, id: string) =>
  new ConfigurationError([
    `REDIS_URL is that of another mirror, which would take the jobs of this one (its records are ${owner}, these are ${id}); ` +
      'expected a Redis of its own, or another database number in it, such as redis://host:6379/1. If those records were ' +
      'replaced by these, stop the processes that still work with them',
  ]);
