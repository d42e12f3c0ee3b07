/**
 * A rate is estimated from the answers since the last refusal, if that is less than `windowMs` ago. Otherwise from those since
 * `recentMs` ago, or since the last gap of `idleMs`, if that is later.
 */
const [windowMs, recentMs, idleMs] = [10_000, 3000, 1000];
/** Refusals within this time are one event: their requests were in flight together. */
const eventMs = 1000;
/** What remains of the estimated rate after a refusal, and how long the curve takes back to it. */
const [remaining, plateauMs] = [0.85, 20_000];
/** Requests that were not sent in this time may be sent at once later. */
const burstMs = 200;
/** The lowest rate after a refusal that is not soon after another one: 6 requests per second. */
const least = 6 / 1000;
/** What a rate gains at least, in requests per ms²: 0.05 per second each second. */
const gain = 0.05 / 1000 / 1000;
/** A refusal takes no more than this from the rate: its estimate is too low if other connections share the limit. */
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
  /** The last refusal, and the rate of answers until then. */
  #refused: { at: number; rate: number } | undefined;
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
    while (this.#answers[0]! < now - windowMs) this.#answers.shift();
  }

  refused(now: number): void {
    const { at = Number.NEGATIVE_INFINITY } = this.#refused ?? {};
    if (now - at < eventMs) return;
    const since = now - at < windowMs ? at : Math.max(this.#busySince, now - recentMs);
    const answers = this.#answers.filter((time) => time > since).length;
    const estimate = answers / Math.max(now - since, eventMs);
    // Later, the curve is far above any rate that was seen, so it is no lower bound.
    const before = now - at < 2 * plateauMs ? this.#rateAt(now)! * (1 - mostLost) : least;
    this.#refused = { at: now, rate: Math.max(estimate, before) };
  }

  /** In requests per ms; undefined: unlimited. */
  #rateAt(now: number): number | undefined {
    if (!this.#refused) return undefined;
    const { at, rate } = this.#refused;
    const from = 1 - (now - at) / plateauMs;
    return rate * (1 - (1 - remaining) * from ** 3) + gain * (now - at);
  }
}
