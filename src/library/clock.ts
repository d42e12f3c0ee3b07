/** The library's clock. Tests move it forward instead of waiting. */
export class Clock {
  #ahead = 0;

  now(): number {
    return Date.now() + this.#ahead;
  }

  advance(milliseconds: number): void {
    this.#ahead += Math.round(milliseconds);
  }
}
