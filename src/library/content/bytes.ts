import { createCipheriv, createHash } from 'node:crypto';

const AES_BLOCK = 16;
const TILE = 256 * 1024;
const STEP = 4099;
const ZEROS = Buffer.alloc(TILE);
const CACHED_TILES = 32;

/**
 * Bytes `start` (inclusive) to `end` (exclusive) of the endless file named by a seed.
 *
 * The file's tile is the first 256 KiB of the AES-128-CTR key stream whose key is the first 16 bytes of SHA-256(seed) and
 * whose counter begins at 0. Block k of 256 KiB of the file is the tile, rotated left by 4099·k bytes. So byte p is
 * `tile[(p % 262144 + 4099 * floor(p / 262144)) % 262144]`. Blocks do not repeat before 64 GiB.
 */
export function bytesOf(seed: number | string, start: number, end: number): Buffer {
  return Buffer.concat([...chunksOf(seed, start, end)]);
}

/** The same bytes in chunks, generated on demand. Chunks share memory: do not write to them. */
export function* chunksOf(seed: number | string, start: number, end: number): Generator<Buffer> {
  if (end <= start) return;
  if (end <= TILE) {
    yield keyStream(seed, start, end);
    return;
  }
  const tile = tileOf(seed);
  for (let at = start; at < end; ) {
    const block = Math.floor(at / TILE);
    const stop = Math.min(end, (block + 1) * TILE);
    const from = ((block * STEP) % TILE) + (at - block * TILE);
    yield tile.subarray(from, from + stop - at);
    at = stop;
  }
}

const tiles = new Map<string, Buffer>();

/** A tile twice in a row, so that each rotation is a slice of it. The latest tiles are cached. */
function tileOf(seed: number | string): Buffer {
  const name = String(seed);
  let tile = tiles.get(name);
  if (!tile) {
    const once = keyStream(seed, 0, TILE);
    tile = Buffer.concat([once, once]);
    if (tiles.size >= CACHED_TILES) tiles.delete(tiles.keys().next().value!);
  }
  tiles.delete(name);
  tiles.set(name, tile);
  return tile;
}

function keyStream(seed: number | string, start: number, end: number): Buffer {
  const key = createHash('sha256').update(String(seed)).digest().subarray(0, AES_BLOCK);
  const counter = Buffer.alloc(AES_BLOCK);
  counter.writeUInt32BE(Math.floor(start / AES_BLOCK), AES_BLOCK - 4);
  const stream = createCipheriv('aes-128-ctr', key, counter);
  stream.update(ZEROS.subarray(0, start % AES_BLOCK));
  return stream.update(ZEROS.subarray(0, end - start));
}
