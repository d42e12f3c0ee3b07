/** A period ends after `leastAnswers` and `leastMs`, or with the first answer after `mostMs`: large files take long. */
const [leastAnswers, leastMs, mostMs] = [20, 500, 10_000];
/** Differences in latency below this come from the mirror's own machine. */
const slackMs = 25;
/** With each period, the usual latency moves by this share towards a longer one. */
const drift = 0.002;
/** A high throughput is remembered for this long. */
const rememberedMs = 30_000;

/** The answers of a period. */
export interface Period {
  /** The shortest time from a request to its answer, in ms. */
  shortest: number;
  /** The median of these times with the waits before the requests, in ms. */
  latency: number;
  /** Answers per ms. */
  rate: number;
  /** By the monotonic clock, in ms. */
  endedAt: number;
}

/** Judges whether more requests at once would help, by the answers that this process gets for one connection. */
export class ResponseTimes {
  #startedAt = Number.NEGATIVE_INFINITY;
  /** In ms: the times from each request to its answer, without and with the wait before the request. */
  #answerMs: number[] = [];
  #totalMs: number[] = [];
  /** The latency while the library is not busy. */
  #usual = Number.POSITIVE_INFINITY;
  /** Periods in a row whose latency was long. */
  #slow = 0;
  /** The highest throughput, and the limit at which it was reached. */
  #best = { rate: 0, limit: 0, at: Number.NEGATIVE_INFINITY };

  /** Adds an answer, which took `answerMs` after a wait for the request. Returns the period that it ends. `now`: by the monotonic clock, in ms. */
  add({ waitedMs, answerMs }: { waitedMs: number; answerMs: number }, now: number): Period | undefined {
    if (this.#startedAt === Number.NEGATIVE_INFINITY) this.restart(now);
    this.#answerMs.push(answerMs);
    this.#totalMs.push(waitedMs + answerMs);
    const elapsed = now - this.#startedAt;
    const hasEnough = this.#answerMs.length >= leastAnswers && elapsed >= leastMs;
    if (!hasEnough && elapsed < mostMs) return undefined;
    const rate = this.#answerMs.length / elapsed;
    const period = { shortest: Math.min(...this.#answerMs), latency: median(this.#totalMs), rate, endedAt: now };
    this.restart(now);
    return period;
  }

  /** `faster`: the library can take more than `limit` assets in flight. `slower`: its requests queue up. */
  judge({ shortest, latency, rate, endedAt }: Period, limit: number): 'faster' | 'slower' | 'neither' {
    const { limit: bestLimit, rate: bestRate, at } = this.#best;
    if (rate > bestRate * 1.1 || limit < bestLimit || endedAt - at > rememberedMs) {
      this.#best = { rate, limit, at: endedAt };
    }
    // One or two requests at once cause no queue at the library.
    const isUsual = shortest < this.#usual || limit <= 2;
    const usual = isUsual ? shortest : this.#usual + (shortest - this.#usual) * drift;
    this.#usual = usual;
    const isSlow = latency > 2 * usual + 2 * slackMs;
    this.#slow = isSlow ? this.#slow + 1 : 0;
    // One slow period may only mean that new connections were opened.
    if (isSlow) return this.#slow > 1 ? 'slower' : 'neither';
    // The limit has doubled since the highest throughput: more assets at once do not help.
    const mayHelp = limit < 2 * this.#best.limit;
    return mayHelp && latency < 1.5 * usual + slackMs ? 'faster' : 'neither';
  }

  /** Begins a period, for example because the limit has just changed. */
  restart(now: number): void {
    this.#startedAt = now;
    this.#answerMs = [];
    this.#totalMs = [];
  }
}

const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1]!;
