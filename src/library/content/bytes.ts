import { createCipheriv, createHash } from 'node:crypto';

const BLOCK = 16;
const CHUNK = 256 * 1024;
const ZEROS = Buffer.alloc(CHUNK + BLOCK);

/**
 * Bytes `start` (inclusive) to `end` (exclusive) of the endless file named by a seed.
 *
 * The file is the AES-128-CTR key stream whose key is the first 16 bytes of SHA-256(seed as decimal or text) and whose
 * counter is the 16-byte big-endian number of the block, so any range costs the same and anyone can make it again:
 * `head -c SIZE /dev/zero | openssl enc -aes-128-ctr -K KEY -iv 00000000000000000000000000000000`.
 */
export function bytesOf(seed: number | string, start: number, end: number): Buffer {
  return Buffer.concat([...chunksOf(seed, start, end)]);
}

/** The same bytes in chunks, made when asked for, so that memory stays flat whatever the size. */
export function* chunksOf(seed: number | string, start: number, end: number): Generator<Buffer> {
  if (end <= start) return;
  const key = createHash('sha256').update(String(seed)).digest().subarray(0, BLOCK);
  const block = Math.floor(start / BLOCK);
  const counter = Buffer.alloc(BLOCK);
  counter.writeBigUInt64BE(BigInt(block), BLOCK - 8);
  const stream = createCipheriv('aes-128-ctr', key, counter);
  stream.update(ZEROS.subarray(0, start - block * BLOCK));
  for (let at = start; at < end; at += CHUNK) {
    yield stream.update(ZEROS.subarray(0, Math.min(CHUNK, end - at)));
  }
}
