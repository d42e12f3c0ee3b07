/** Reservoir sampling (Vitter, algorithm R): each of the items so far is among the chosen with the same probability. */
export class Reservoir<T> {
  readonly chosen: T[] = [];
  readonly #size: number;
  #seen = 0;

  constructor(size: number) {
    this.#size = size;
  }

  add(item: T): void {
    const index = Math.floor(Math.random() * ++this.#seen);
    if (this.chosen.length < this.#size) this.chosen.push(item);
    else if (index < this.#size) this.chosen[index] = item;
  }
}
