import type { Rule } from '../../src/library/faults/rules.ts';
import type { Random } from './prng.ts';
import type { World } from './world.ts';

type Details = Record<string, number | string>;

export interface FaultKind {
  name: string;
  /** The component that can have only one fault at a time. */
  of: string;
  only?: 'directory' | 's3';
  /** How long it holds: at least and at most, in milliseconds. */
  holds: [number, number];
  draw?: (random: Random) => Details;
  /** Starts it, and returns the function that ends it. */
  begin: (world: World, details: Details) => Promise<() => Promise<unknown>>;
}

const which = (random: Random) => ({ worker: random.pick(['worker-1', 'worker-2']) });
const whose = (random: Random) => ({ user: random.pick(['ines', 'jon', 'kim']) });

/** A rule of the library's own fault switches, and its end. */
const rule =
  (make: (details: Details) => Rule | Rule[]): FaultKind['begin'] =>
  async (world, details) => {
    const rules = [make(details)].flat();
    await world.library.spoil(rules);
    return () => world.library.repair(rules);
  };

const restart =
  (name: (details: Details) => string, signal: 'SIGKILL' | 'SIGTERM'): FaultKind['begin'] =>
  async (world, details) => {
    await world.programs[name(details)]!.end(signal);
    return () => world.programs[name(details)]!.start();
  };

const freeze =
  (name: (details: Details) => string): FaultKind['begin'] =>
  async (world, details) => {
    world.programs[name(details)]!.signal('SIGSTOP');
    return async () => world.programs[name(details)]!.signal('SIGCONT');
  };

const s3 =
  (make: (details: Details) => Parameters<World['s3Trouble']>[0]): FaultKind['begin'] =>
  async (world, details) => {
    const end = world.s3Trouble(make(details));
    return async () => end();
  };

/** Every fault that a run may draw. README.md has their effects. */
export const faultKinds: FaultKind[] = [
  {
    name: 'worker-killed',
    of: 'worker',
    holds: [300, 3000],
    draw: which,
    begin: restart((d) => String(d.worker), 'SIGKILL'),
  },
  {
    name: 'worker-killed-again',
    of: 'worker',
    holds: [300, 1000],
    draw: which,
    begin: restart((d) => String(d.worker), 'SIGKILL'),
  },
  {
    name: 'worker-deployed',
    of: 'worker',
    holds: [100, 1000],
    draw: which,
    begin: restart((d) => String(d.worker), 'SIGTERM'),
  },
  { name: 'worker-frozen', of: 'worker', holds: [22_000, 26_000], draw: which, begin: freeze((d) => String(d.worker)) },
  { name: 'web-killed', of: 'web', holds: [300, 2000], begin: restart(() => 'web', 'SIGKILL') },
  {
    name: 'all-killed',
    of: 'worker',
    holds: [500, 1500],
    async begin(world) {
      const all = ['web', 'worker-1', 'worker-2'].map((name) => world.programs[name]!);
      await Promise.all(all.map((program) => program.end('SIGKILL')));
      return () => Promise.all(all.map((program) => program.start()));
    },
  },

  {
    name: 'redis-flushed',
    of: 'redis',
    holds: [0, 0],
    async begin(world) {
      await world.flushRedis();
      return async () => {};
    },
  },
  { name: 'redis-restarted', of: 'redis', holds: [200, 3000], begin: restart(() => 'redis', 'SIGTERM') },
  { name: 'redis-killed', of: 'redis', holds: [200, 3000], begin: restart(() => 'redis', 'SIGKILL') },

  // Its supervisor restarts it after a moment.
  ...(['SIGINT', 'SIGQUIT', 'SIGKILL'] as const).map(
    (signal): FaultKind => ({
      name: { SIGINT: 'postgres-restarted', SIGQUIT: 'postgres-crashed', SIGKILL: 'postgres-killed' }[signal],
      of: 'postgres',
      holds: [0, 0],
      async begin(world) {
        await world.endPostgres(signal);
        return () => world.postgresIsBack();
      },
    }),
  ),

  { name: 's3-killed', of: 's3', only: 's3', holds: [300, 4000], begin: (world) => world.killS3() },
  {
    name: 's3-errors',
    of: 's3',
    only: 's3',
    holds: [1000, 5000],
    draw: (r) => ({ status: r.pick([500, 503]), share: r.pick([0.3, 1]) }),
    begin: s3((d) => ({ share: Number(d.share), status: Number(d.status) })),
  },
  {
    name: 's3-resets',
    of: 's3',
    only: 's3',
    holds: [1000, 3000],
    async begin(world) {
      world.s3Proxy!.cut();
      const end = world.s3Trouble({ share: 0.3, resetAfter: 20_000 });
      return async () => end();
    },
  },
  { name: 's3-stalls', of: 's3', only: 's3', holds: [2000, 6000], begin: s3(() => ({ share: 0.5, stall: true })) },
  {
    name: 's3-slow',
    of: 's3',
    only: 's3',
    holds: [2000, 5000],
    draw: (r) => ({ latency: r.between(200, 900) }),
    begin: s3((d) => ({ share: 1, latency: Number(d.latency) })),
  },
  {
    name: 's3-answers-lost',
    of: 's3',
    only: 's3',
    holds: [500, 2000],
    begin: s3(() => ({ share: 0.2, loseAnswer: true })),
  },
  { name: 'disk-full', of: 's3', only: 'directory', holds: [1000, 5000], begin: (world) => world.fillDisk() },

  { name: 'library-killed', of: 'library', holds: [200, 2000], begin: (world) => world.library.kill() },
  { name: 'library-frozen', of: 'library', holds: [1000, 5000], begin: freeze(() => 'library') },
  {
    name: 'library-lines-cut',
    of: 'library',
    holds: [0, 0],
    async begin(world) {
      world.libraryProxy.cut();
      return async () => {};
    },
  },
  {
    name: 'library-down',
    of: 'library',
    holds: [1000, 5000],
    draw: (r) => ({ status: r.pick([500, 502, 503]) }),
    begin: rule((d) => ({ endpoint: '*', status: Number(d.status) })),
  },
  {
    name: 'api-errors',
    of: 'library',
    holds: [1000, 5000],
    draw: (r) => ({ endpoint: r.pick(['me', 'assets', 'asset']), times: r.between(3, 20) }),
    begin: rule((d) => ({ endpoint: d.endpoint as 'asset', status: 500, times: Number(d.times) })),
  },
  {
    name: 'media-errors',
    of: 'library',
    holds: [1000, 5000],
    draw: (r) => ({ times: r.between(3, 20) }),
    begin: rule((d) => ({ endpoint: 'media', status: 503, times: Number(d.times) })),
  },
  {
    name: 'too-many-requests',
    of: 'library',
    holds: [1000, 3000],
    draw: (r) => ({ times: r.between(1, 10) }),
    begin: rule((d) => ({ endpoint: 'asset', retryAfter: 1, times: Number(d.times) })),
  },
  {
    name: 'media-reset',
    of: 'library',
    holds: [1000, 4000],
    draw: (r) => ({ times: r.between(2, 12), after: r.between(0, 60_000) }),
    begin: rule((d) =>
      ['media', 'mp4', 'thumbnail'].map((endpoint) => ({
        endpoint: endpoint as 'media',
        cutAfter: Number(d.after),
        reset: true,
        times: Number(d.times),
      })),
    ),
  },
  {
    name: 'listing-cut',
    of: 'library',
    holds: [1000, 6000],
    draw: (r) => ({ after: r.between(0, 4000) }),
    begin: rule((d) => ({ endpoint: 'assets', cutAfter: Number(d.after), times: 3 })),
  },
  {
    name: 'media-stalls',
    of: 'library',
    holds: [2000, 6000],
    draw: (r) => ({ times: r.between(1, 6), after: r.between(0, 60_000) }),
    begin: rule((d) => ({ endpoint: 'media', stallAfter: Number(d.after), times: Number(d.times) })),
  },
  {
    name: 'library-slow',
    of: 'library',
    holds: [1000, 5000],
    draw: (r) => ({ latency: r.between(200, 1200) }),
    begin: rule((d) => ({ endpoint: '*', latency: Number(d.latency) })),
  },
  {
    name: 'answers-lost',
    of: 'library',
    holds: [1000, 3000],
    draw: (r) => ({ endpoint: r.pick(['me', 'assets', 'asset', 'media', 'transcript']) }),
    begin: rule((d) => ({ endpoint: d.endpoint as 'asset', dropAnswer: true, times: 5 })),
  },
  {
    name: 'links-expired',
    of: 'library',
    holds: [1000, 5000],
    draw: (r) => ({ times: r.between(1, 15) }),
    begin: rule((d) => [
      { endpoint: 'media', expireLinks: true, times: Number(d.times) },
      { endpoint: 'mp4', expireLinks: true, times: 2 },
    ]),
  },
  {
    name: 'media-of-another-size',
    of: 'library',
    holds: [1000, 4000],
    draw: (r) => ({ times: r.between(1, 6), by: r.between(1, 500) }),
    begin: rule((d) => ({ endpoint: 'media', longBy: Number(d.by), times: Number(d.times) })),
  },
  {
    name: 'pages-for-files',
    of: 'library',
    holds: [1000, 4000],
    draw: (r) => ({ times: r.between(1, 6) }),
    begin: rule((d) => ({
      endpoint: 'media',
      status: 200,
      times: Number(d.times),
      body: '<!doctype html><title>Please sign in</title>',
    })),
  },

  {
    name: 'tokens-expired',
    of: 'tokens',
    holds: [0, 0],
    async begin(world) {
      await world.library.admin((admin) => admin.expireTokens());
      return async () => {};
    },
  },
  {
    name: 'token-errors',
    of: 'tokens',
    holds: [1000, 4000],
    async begin(world, details) {
      const end = await rule(() => ({ endpoint: 'token', status: 503 }))(world, details);
      await world.library.admin((admin) => admin.expireTokens());
      return end;
    },
  },
  {
    name: 'token-answer-lost',
    of: 'tokens',
    holds: [1000, 3000],
    draw: whose,
    async begin(world, details) {
      const end = await rule(() => ({ endpoint: 'token', dropAnswer: true, times: 1 }))(world, details);
      await world.library.admin((admin) => admin.expireTokens(String(details.user)));
      return end;
    },
  },
  {
    name: 'disconnected',
    of: 'tokens',
    holds: [500, 6000],
    draw: whose,
    async begin(world, details) {
      world.endedByUs.push({ user: String(details.user), at: Date.now() });
      await world.library.admin((admin) => admin.endConnections(String(details.user)));
      return () => world.connect(String(details.user));
    },
  },
  {
    name: 'access-lost',
    of: 'tokens',
    holds: [1000, 8000],
    draw: (r) => ({ user: r.pick(['ines', 'jon']) }),
    async begin(world, details) {
      await world.library.admin((admin) => admin.setAccess('north', String(details.user), false));
      return () => world.library.admin((admin) => admin.setAccess('north', String(details.user), true));
    },
  },
];
