/** What can be read from a file. The duration is in seconds. */
export type Metadata = { width?: number; height?: number; duration?: number };

/** Reads up to `length` bytes from `offset`, fewer at the end of the file. */
export type Read = (offset: number, length: number) => Promise<Buffer>;

export function seconds(value: number): { duration?: number } {
  return Number.isFinite(value) && value > 0 ? { duration: Math.round(value * 1000) / 1000 } : {};
}
