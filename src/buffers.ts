import { collect } from './collect.ts';

/**
 * The memory of bodies on their way through. What sockets read into lent buffers is handed back by whoever looks at it last,
 * and read into again; all else is garbage, and collected soon.
 */

/**
 * Read from a socket at once. More has left the processor's cache before it is summed and sent; and from 128 KiB on glibc asks
 * the kernel for each buffer.
 */
const readBytes = 120 * 1024;
/** Less than this is copied out of the buffer, so that a slow line does not hold one for each of its packets. */
const leastLent = 16 * 1024;
/** So many lie ready for the next read. */
const mostFree = 32;
/** So much becomes garbage between two collections; each takes about a millisecond. */
const collectEvery = 4 << 20;
/** So much passes through between two collections of everything: about 40 ms each, by how much there is. */
const collectAllEvery = 2 ** 30;

const free: Buffer[] = [];
/** How much was read into each buffer that is lent. */
const lent = new WeakMap<ArrayBufferLike, number>();
let garbage = 0;
let passed = 0;

/** A buffer to read into. */
export function lend(): Buffer {
  const buffer = free.pop();
  if (buffer) return buffer;
  // As many as are made were not handed back.
  isGarbage(readBytes);
  return Buffer.allocUnsafeSlow(readBytes);
}

/** What has been read into a lent buffer. */
export function filled({ buffer }: Uint8Array, bytes: number): Buffer {
  const chunk = Buffer.from(buffer, 0, bytes);
  if (bytes < leastLent) {
    const copy = Buffer.from(chunk);
    if (free.length < mostFree) free.push(Buffer.from(buffer));
    return copy;
  }
  lent.set(buffer, bytes);
  return chunk;
}

/**
 * To be called when nobody will look at a chunk again, nor at what came before it: its memory becomes another buffer's, and the
 * chunk is empty. Nothing happens to what was never lent, nor when more was read behind the chunk: who knows where that is.
 */
export function handBack(chunk: Buffer): void {
  const buffer = chunk.buffer as ArrayBuffer;
  if (lent.get(buffer) !== chunk.byteOffset + chunk.length || free.length >= mostFree) return;
  free.push(Buffer.from(buffer.transfer()));
}

/** To be called when a chunk has been passed on. */
export function passedOn(chunk: Buffer): void {
  if (!lent.has(chunk.buffer)) isGarbage(chunk.length);
  passed += chunk.length;
  if (passed < collectAllEvery) return;
  passed = 0;
  // What has grown old meanwhile is 10 MiB, which V8 would see no reason to look at.
  collect({ type: 'major' });
}

/**
 * V8 collects young objects when they fill their space, and counts the few bytes of a buffer's object, not the many KiB that it
 * holds: what is spent would wait in its tens of megabytes.
 */
function isGarbage(bytes: number): void {
  garbage += bytes;
  if (garbage < collectEvery) return;
  garbage = 0;
  collect({ type: 'minor' });
}
