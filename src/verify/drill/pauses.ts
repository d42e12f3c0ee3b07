import { setTimeout as sleep } from 'node:timers/promises';

/** Pauses after each piece of work for as long as it took: other work of this process gets the other half of the time. */
export class Pauses {
  totalMs = 0;
  readonly #signal: AbortSignal;
  #since = performance.now();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  readonly pause = async (): Promise<void> => {
    const before = performance.now();
    await sleep(before - this.#since, undefined, { signal: this.#signal });
    this.#since = performance.now();
    this.totalMs += this.#since - before;
  };
}
