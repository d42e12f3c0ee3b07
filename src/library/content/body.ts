import { createHash } from 'node:crypto';
import { chunksOf } from './bytes.ts';

/** The content of a file, rendition or thumbnail. Any range can be read, and none is kept in memory. */
export type Body = {
  size: number;
  /** A strong validator: no two bodies have the same. */
  etag: string;
  type: string;
  chunks(start: number, end: number): Iterable<Buffer> | AsyncIterable<Buffer>;
};

/** A part of a body: bytes in memory, or bytes that are generated when they are read. */
export type Part = Buffer | { size: number; name: string; chunks(start: number, end: number): Iterable<Buffer> };

export function bodyOf(type: string, parts: Part[]): Body {
  const size = parts.reduce((sum, part) => sum + sizeOf(part), 0);
  return {
    size,
    get etag() {
      return etagOf(type, parts);
    },
    type,
    chunks: (start, end) => readParts(parts, start, Math.min(end, size)),
  };
}

export function generated(seed: number | string, size: number): Part {
  return { size, name: `generated ${seed} ${size}`, chunks: (start, end) => chunksOf(seed, start, end) };
}

/** The same file, made longer or shorter by some bytes. */
export function resized(body: Body, by: number): Body {
  const size = Math.max(0, body.size + by);
  return {
    ...body,
    size,
    etag: `"${body.etag.slice(1, -1)}${by < 0 ? by : `+${by}`}"`,
    async *chunks(start, end) {
      if (start < body.size) yield* body.chunks(start, Math.min(end, body.size, size));
      if (end > body.size) yield* chunksOf('longer', Math.max(0, start - body.size), Math.min(end, size) - body.size);
    },
  };
}

function* readParts(parts: Part[], start: number, end: number): Generator<Buffer> {
  let offset = 0;
  for (const part of parts) {
    const from = Math.max(start - offset, 0);
    const to = Math.min(end - offset, sizeOf(part));
    if (from < to) {
      if (Buffer.isBuffer(part)) yield part.subarray(from, to);
      else yield* part.chunks(from, to);
    }
    offset += sizeOf(part);
  }
}

function sizeOf(part: Part): number {
  return Buffer.isBuffer(part) ? part.length : part.size;
}

function etagOf(type: string, parts: Part[]): string {
  const hash = createHash('sha256').update(type);
  for (const part of parts) hash.update('\0').update(Buffer.isBuffer(part) ? part : part.name);
  return `"${hash.digest('hex').slice(0, 32)}"`;
}
