/** What a file says about itself. */
export type Facts = { width?: number; height?: number; duration?: number };

/** Reads up to `length` bytes of a file from `offset`; fewer at its end. */
export type Read = (offset: number, length: number) => Promise<Buffer>;

export function seconds(value: number): { duration?: number } {
  return Number.isFinite(value) && value > 0 ? { duration: Math.round(value * 1000) / 1000 } : {};
}
