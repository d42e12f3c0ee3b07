import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';

export const KiB = 1024;
export const MiB = 1024 * KiB;

/** Lengths of bodies that an S3 store sends in different ways: their names, their bytes, and the declared length. */
export const lengths: [string, number, number | undefined][] = [
  ['100 bytes', 100, 100],
  ['1 MiB', MiB, MiB],
  ['8 MiB', 8 * MiB, 8 * MiB],
  ['40 MiB, not declared', 40 * MiB, undefined],
];

/** Random bytes, the same block over and over: large bodies cost no time to make. */
export function bytesOf(length: number): Buffer {
  const block = randomBytes(Math.min(length, 256 * KiB) || 1);
  const all = Buffer.alloc(length);
  for (let at = 0; at < length; at += block.length) block.copy(all, at);
  return all;
}

/** Streams these bytes in chunks, then calls `then`: ends if it returns, fails if it throws. */
export function streaming(
  bytes: Buffer,
  then: () => Promise<unknown> | unknown = () => {},
  chunk = 64 * KiB,
): Readable {
  return Readable.from(
    (async function* () {
      for (let at = 0; at < bytes.length; at += chunk) yield bytes.subarray(at, at + chunk);
      await then();
    })(),
    { objectMode: false },
  );
}

export async function collected(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** CRC-32 of ISO 3309, bit by bit, to compare with the mirror's; lower-case hex. */
export function crc32Of(bytes: Buffer): string {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  }
  return ((sum ^ 0xffffffff) >>> 0).toString(16).padStart(8, '0');
}
