/**
 * A rate is estimated from the answers since the last refusal, if that is less than `plateauMs` ago. Otherwise from those since
 * `recentMs` ago, or since the last gap of `idleMs`, if that is later.
 */
const [recentMs, idleMs] = [3000, 1000];
/** Many of the recent answers came from the library's reserve: they are counted as if they had taken this much longer. */
const reserveMs = 500;
/** Refusals within this time are one event: their requests were in flight together. */
const eventMs = 1000;
/** The share of the estimated rate that remains after a refusal, and how long the curve takes back to the estimate. */
const [remaining, plateauMs] = [0.85, 20_000];
/** Requests that were not sent in this time may be sent at once later. */
const burstMs = 200;
/** The lowest rate after a refusal that is not soon after another one: 6 requests per second. */
const least = 6 / 1000;
/** Connections that are refused within this time, each after at least this number of answers, are likely to share a limit. */
const [togetherMs, leastAnswers] = [5000, 10];
/** A rate gains at least this, in requests per ms²: 0.05 per second each second. */
const gain = 0.05 / 1000 / 1000;
/** A refusal takes at most this share of the rate: the estimate is too low if other connections share the limit. */
const mostLost = 0.3;

/**
 * The rate at which the library answers the requests of one connection, for one process. Unlimited until the library refuses
 * one (429). Its answers between two refusals show what it allows. After a refusal a little less is sent, and then more again,
 * along the curve of CUBIC (RFC 9438), as in the adaptive retry mode of the AWS SDKs. `now` is by the monotonic clock, in ms.
 */
export class RequestRate {
  /** Times of the latest answers. */
  readonly #answers: number[] = [];
  #busySince = Number.NEGATIVE_INFINITY;
  /** The last refusal, the rate of answers until then, and whether it may be the mean with others. */
  #refused: { at: number; rate: number; mayShare: boolean } | undefined;
  /** When the last reserved request is due, if all are sent at even intervals. */
  #last = Number.NEGATIVE_INFINITY;

  /**
   * Reserves the next request. Returns how long it has to wait, in ms. Infinity: longer than `mostMs`. Then nothing is reserved,
   * because the rate may be higher soon.
   */
  reserve(now: number, mostMs = Number.POSITIVE_INFINITY): number {
    const rate = this.#rateAt(now);
    if (rate === undefined) return 0;
    const next = Math.max(this.#last, now - burstMs) + 1 / rate;
    if (next - now > mostMs) return Number.POSITIVE_INFINITY;
    this.#last = next;
    return Math.max(0, next - now);
  }

  answered(now: number): void {
    const last = this.#answers.at(-1) ?? Number.NEGATIVE_INFINITY;
    if (now - last > idleMs) this.#busySince = now;
    this.#answers.push(now);
    while (this.#answers[0]! < now - plateauMs) this.#answers.shift();
  }

  refused(now: number): void {
    const { at = Number.NEGATIVE_INFINITY } = this.#refused ?? {};
    if (now - at < eventMs) return;
    const since = now - at < plateauMs ? at : Math.max(this.#busySince, now - recentMs);
    const answers = this.#answers.filter((time) => time > since).length;
    // The library's reserve was empty at a refusal.
    const estimate = answers / Math.max(now - since + (since === at ? 0 : reserveMs), eventMs);
    // Later, the curve is far above any rate that was seen, so it is no lower bound.
    const before = now - at < 2 * plateauMs ? this.#rateAt(now)! * (1 - mostLost) : least;
    this.#refused = { at: now, rate: Math.max(estimate, before), mayShare: answers >= leastAnswers };
  }

  /**
   * Connections that the library has just refused together are likely to share its limit: they get the mean of their rates. Once for
   * each refusal, because each may have a limit of its own.
   */
  static share(rates: RequestRate[], now: number): void {
    const together = rates
      .map((rate) => rate.#refused)
      .filter((refused) => refused !== undefined)
      .filter(({ at, mayShare }) => mayShare && now - at < togetherMs);
    if (together.length < 2) return;
    const mean = together.reduce((sum, { rate }) => sum + rate, 0) / together.length;
    for (const refused of together) Object.assign(refused, { rate: mean, mayShare: false });
  }

  /** In requests per ms; undefined: unlimited. */
  #rateAt(now: number): number | undefined {
    if (!this.#refused) return undefined;
    const { at, rate } = this.#refused;
    const from = 1 - (now - at) / plateauMs;
    return rate * (1 - (1 - remaining) * from ** 3) + gain * (now - at);
  }
}
