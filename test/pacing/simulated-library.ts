import { longWaitMs } from '../../src/pacing/adaptive-concurrency.ts';
import { type AdaptiveLimit, faster, limitOf, slower } from '../../src/pacing/concurrency-limit.ts';
import { RequestRate } from '../../src/pacing/request-rate.ts';
import { ResponseTimes } from '../../src/pacing/response-times.ts';

/** A library, its network and one or more connections, in simulated time. Times in ms. */
export interface Conditions {
  /** Round trip to the library. */
  latency: number;
  /** API requests per second that it allows to all together, or to each; more get 429 and `Retry-After: 1`. */
  perSecond?: number | number[];
  /** It works on this many API requests at once, each for `workMs`; others wait. */
  workers?: number;
  workMs?: number;
  /** How long an asset takes after the API's answer. */
  transferMs: number;
  ceiling?: number;
  seconds?: number;
  /** When each connection begins, in seconds. Each has more assets than can be mirrored. */
  begin?: number[];
  /** Of the random numbers. */
  seed?: number;
}

/** What became of one connection, by second. */
export interface Simulated {
  mirrored: number[];
  limits: number[];
  refused: number[];
}

export const sum = (counts: number[]) => counts.reduce((all, count) => all + count, 0);

/** Runs the adaptive limit and rate of each connection against a simulated library. */
export function simulate(conditions: Conditions): Simulated[] {
  const { seconds = 60, begin = [0], seed = 1 } = conditions;
  const timeline = createTimeline(seed);
  const library = createLibrary(conditions, timeline);
  const rates = begin.map(() => new RequestRate());
  const connections = begin.map((beginsAt, index) => {
    const { seen, limit, fill } = createConnection(conditions, { timeline, library, rates, index });
    for (let second = 0; second < seconds; second++) timeline.after(second * 1000, () => seen.limits.push(limit()));
    timeline.after(beginsAt * 1000, fill);
    return seen;
  });
  timeline.run(seconds * 1000);

  const bySecond = (counts: number[]) => Array.from({ length: seconds }, (_, second) => counts[second] ?? 0);
  return connections.map(({ mirrored, limits, refused }) => ({
    mirrored: bySecond(mirrored),
    limits,
    refused: bySecond(refused),
  }));
}

type Timeline = ReturnType<typeof createTimeline>;

/** Simulated time, its events in order, and the random numbers of the simulation. */
function createTimeline(seed: number) {
  const start = 1e6;
  const events: { at: number; run: () => void }[] = [];
  let now = start;
  let lastRandom = seed;

  return {
    now: () => now,

    /** Seconds since the start. */
    second: () => Math.floor((now - start) / 1000),

    /** From 0 to 1. */
    random(): number {
      lastRandom = (lastRandom * 16_807) % 2_147_483_647;
      return lastRandom / 2_147_483_647;
    },

    after(ms: number, run: () => void): void {
      const index = events.findLastIndex(({ at }) => at <= now + ms);
      events.splice(index + 1, 0, { at: now + ms, run });
    },

    /** Runs all events of this time, and those that they cause. */
    run(ms: number): void {
      for (let event = events.shift(); event && event.at < start + ms; event = events.shift()) {
        now = event.at;
        event.run();
      }
    },
  };
}

type Library = ReturnType<typeof createLibrary>;

/** Which requests the library refuses, and how long it works on the others. */
function createLibrary({ perSecond, workers = 0, workMs = 0 }: Conditions, { now }: Timeline) {
  const forAll = typeof perSecond === 'number' ? limitTo(perSecond, now) : () => true;
  const freeAt = Array.from({ length: workers }, () => now());

  return {
    /** The limit for a connection: returns false for each request that is refused. */
    limitFor: (index: number) => (Array.isArray(perSecond) ? limitTo(perSecond[index]!, now) : forAll),

    /** Gives a request to the worker that is free first. Returns when it is done, in ms from now. */
    work(): number {
      if (workers === 0) return 0;
      freeAt.sort((a, b) => a - b);
      freeAt[0] = Math.max(freeAt[0]!, now()) + workMs;
      return freeAt[0] - now();
    },
  };
}

/** A token bucket. */
function limitTo(perSecond: number, now: () => number): () => boolean {
  let [tokens, filledAt] = [perSecond, now()];
  return () => {
    tokens = Math.min(perSecond, tokens + ((now() - filledAt) / 1000) * perSecond);
    filledAt = now();
    if (tokens < 1) return false;
    tokens--;
    return true;
  };
}

/** One connection: asks the library for assets, as many at once as its limit allows. */
function createConnection(
  { latency, transferMs, ceiling = 128 }: Conditions,
  on: { timeline: Timeline; library: Library; rates: RequestRate[]; index: number },
) {
  const { timeline, library, rates } = on;
  const { now, after, random } = timeline;
  const seen: Simulated = { mirrored: [], limits: [], refused: [] };
  const takeToken = library.limitFor(on.index);
  const rate = rates[on.index]!;
  const adaptive = createAdaptiveLimit(ceiling, now);
  let inFlight = 0;
  let pausedUntil = 0;

  function count(what: number[]): void {
    const second = timeline.second();
    what[second] = (what[second] ?? 0) + 1;
  }

  function fill(): void {
    if (now() < pausedUntil) return;
    for (; inFlight < adaptive.limit(); inFlight++) ask();
  }

  function ask(askedAt = now()): void {
    const wait = rate.reserve(now(), longWaitMs);
    if (wait === Number.POSITIVE_INFINITY) {
      after(longWaitMs * (0.5 + random() / 2), () => ask(askedAt));
      return;
    }
    const sentAt = now() + wait;
    const waitedMs = sentAt - askedAt;
    after(wait + latency / 2, () => {
      if (!takeToken()) return after(latency / 2, refused);
      after(library.work() + (latency / 2) * (1 + random() / 5), () => answered(now() - sentAt, waitedMs));
    });
  }

  function refused(): void {
    count(seen.refused);
    inFlight--;
    rate.refused(now());
    RequestRate.share(rates, now());
    const until = now() + 1050 + random() * 250;
    if (until <= pausedUntil) return;
    pausedUntil = until;
    after(until - now() + random() * 500, fill);
  }

  function answered(answerMs: number, waitedMs: number): void {
    rate.answered(now());
    adaptive.answered({ answerMs, waitedMs }, inFlight);
    after(transferMs * (0.8 + random() * 0.4), () => {
      inFlight--;
      count(seen.mirrored);
      after(5, fill);
    });
    fill();
  }

  return { seen, limit: adaptive.limit, fill };
}

/** The adaptive limit of one connection, which follows the times of its answers. */
function createAdaptiveLimit(ceiling: number, now: () => number) {
  const times = new ResponseTimes();
  let adaptiveLimit: AdaptiveLimit = { limit: 16, limitAtObjection: null, strikes: 0, slowedAt: 0 };
  const limit = () => limitOf(adaptiveLimit, ceiling);

  return {
    limit,

    answered(took: { answerMs: number; waitedMs: number }, inFlight: number): void {
      const period = times.add(took, now());
      if (!period) return;
      const at = { adaptiveLimit, ceiling, limit: limit(), queued: inFlight, now: now() };
      const verdict = times.judge(period, at.limit);
      const slowed = verdict === 'slower' && at.limit > 1 ? slower(at, 'latency') : undefined;
      if (slowed) adaptiveLimit = slowed.adaptiveLimit;
      if (verdict === 'faster' && inFlight >= at.limit) adaptiveLimit = faster(at);
      if (limit() !== at.limit) times.restart(now());
    },
  };
}
