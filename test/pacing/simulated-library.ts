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
  const { latency, perSecond, workers = 0, workMs = 0, transferMs } = conditions;
  const { ceiling = 128, seconds = 60, begin = [0] } = conditions;
  let { seed = 1 } = conditions;
  const start = 1e6;
  const events: { at: number; run: () => void }[] = [];
  let now = start;
  const random = () => {
    seed = (seed * 16_807) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  const after = (ms: number, run: () => void) => {
    const index = events.findLastIndex(({ at }) => at <= now + ms);
    events.splice(index + 1, 0, { at: now + ms, run });
  };

  const limitedTo = (allowed: number) => {
    let [tokens, filledAt] = [allowed, now];
    return (): boolean => {
      tokens = Math.min(allowed, tokens + ((now - filledAt) / 1000) * allowed);
      filledAt = now;
      if (tokens < 1) return false;
      tokens--;
      return true;
    };
  };
  const forAll = typeof perSecond === 'number' ? limitedTo(perSecond) : () => true;
  const freeAt = Array.from({ length: workers }, () => now);
  const work = (): number => {
    if (workers === 0) return 0;
    freeAt.sort((a, b) => a - b);
    freeAt[0] = Math.max(freeAt[0]!, now) + workMs;
    return freeAt[0] - now;
  };

  const rates = begin.map(() => new RequestRate());
  const connections = begin.map((beginsAt, index) => {
    const takeToken = Array.isArray(perSecond) ? limitedTo(perSecond[index]!) : forAll;
    const seen: Simulated = { mirrored: [], limits: [], refused: [] };
    const count = (what: number[]) => {
      const second = Math.floor((now - start) / 1000);
      what[second] = (what[second] ?? 0) + 1;
    };
    let adaptiveLimit: AdaptiveLimit = { limit: 16, limitAtObjection: null, strikes: 0, slowedAt: 0 };
    const [times, rate] = [new ResponseTimes(), rates[index]!];
    let inFlight = 0;
    let pausedUntil = 0;
    const concurrency = () => {
      const limit = limitOf(adaptiveLimit, ceiling);
      return { adaptiveLimit, ceiling, limit, queued: inFlight, now };
    };

    function fill(): void {
      if (now < pausedUntil) return;
      for (; inFlight < concurrency().limit; inFlight++) ask();
    }

    function ask(askedAt = now): void {
      const wait = rate.reserve(now, longWaitMs);
      if (wait === Number.POSITIVE_INFINITY) {
        after(longWaitMs * (0.5 + random() / 2), () => ask(askedAt));
        return;
      }
      const sentAt = now + wait;
      const waitMs = sentAt - askedAt;
      after(wait + latency / 2, () => {
        if (!takeToken()) return after(latency / 2, refused);
        after(work() + (latency / 2) * (1 + random() / 5), () => answered(now - sentAt, waitMs));
      });
    }

    function refused(): void {
      count(seen.refused);
      inFlight--;
      rate.refused(now);
      RequestRate.share(rates, now);
      const until = now + 1050 + random() * 250;
      if (until <= pausedUntil) return;
      pausedUntil = until;
      after(until - now + random() * 500, fill);
    }

    function answered(ms: number, waitMs: number): void {
      rate.answered(now);
      const period = times.add({ waitedMs: waitMs, answerMs: ms }, now);
      if (period) adapt(times.judge(period, concurrency().limit));
      after(transferMs * (0.8 + random() * 0.4), () => {
        inFlight--;
        count(seen.mirrored);
        after(5, fill);
      });
      fill();
    }

    function adapt(verdict: ReturnType<ResponseTimes['judge']>): void {
      const at = concurrency();
      const slowed = verdict === 'slower' && at.limit > 1 ? slower(at, 'latency') : undefined;
      if (slowed) adaptiveLimit = slowed.adaptiveLimit;
      if (verdict === 'faster' && inFlight >= at.limit) adaptiveLimit = faster(at);
      if (concurrency().limit !== at.limit) times.restart(now);
    }

    for (let second = 0; second < seconds; second++) after(second * 1000, () => seen.limits.push(concurrency().limit));
    after(beginsAt * 1000, fill);
    return seen;
  });

  for (let event = events.shift(); event && event.at < start + seconds * 1000; event = events.shift()) {
    now = event.at;
    event.run();
  }
  const bySecond = (counts: number[]) => Array.from({ length: seconds }, (_, second) => counts[second] ?? 0);
  return connections.map(({ mirrored, limits, refused }) => ({
    mirrored: bySecond(mirrored),
    limits,
    refused: bySecond(refused),
  }));
}
