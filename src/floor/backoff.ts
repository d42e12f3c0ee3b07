/** `first` ms, and `factor` times as much after each failure, until `last`. Each has up to a quarter more. */
export const backoff = (failures: number, first: number, last: number, factor = 2): number =>
  Math.min(first * factor ** failures, last) * (1 + Math.random() / 4);
