import { KnownError } from '../floor/errors.ts';

/** The minimum rate of a file, as a mean over `windowMs` of waiting for the source. */
export interface MinRate {
  bytesPerSecond: number;
  windowMs: number;
}

/** A file was slower than the minimum rate. Other files get its slot, and it is tried again later. */
export class TooSlow extends KnownError {
  readonly windowMs: number;

  constructor(bytesPerSecond: number, { bytesPerSecond: least, windowMs }: MinRate) {
    super({ code: 'too_slow', bytesPerSecond: Math.round(bytesPerSecond), least, windowMs });
    this.windowMs = windowMs;
  }
}

/**
 * Measures how fast the source delivers one file, over all parts that are fetched at once. The clock stops while any of
 * them waits on this side, for a bandwidth limit or for the store.
 */
export class RateWatch {
  readonly #least: MinRate;
  #fetching = 0;
  #pauses = 0;
  #since = 0;
  #ms = 0;
  #bytes = 0;

  constructor(least: MinRate) {
    this.#least = least;
  }

  begin(): void {
    this.#advance();
    this.#fetching++;
  }

  end(): void {
    this.#advance();
    this.#fetching--;
  }

  /** Counts bytes, and returns the error when a window ends with too few of them. */
  received(bytes: number): TooSlow | undefined {
    this.#advance();
    this.#bytes += bytes;
    if (this.#ms < this.#least.windowMs) return undefined;
    const rate = (this.#bytes / this.#ms) * 1000;
    this.#ms = this.#bytes = 0;
    return rate < this.#least.bytesPerSecond ? new TooSlow(rate, this.#least) : undefined;
  }

  /** A chunk waits on this side, until `resume`. */
  pause(): void {
    this.#advance();
    this.#pauses++;
  }

  resume(): void {
    this.#advance();
    this.#pauses--;
  }

  #advance(): void {
    const now = performance.now();
    if (this.#fetching > 0 && this.#pauses === 0) this.#ms += now - this.#since;
    this.#since = now;
  }
}
