import { createHash } from 'node:crypto';

const block = 16 * 2 ** 20;
const sha256 = (...parts: Buffer[]) => createHash('sha256').update(Buffer.concat(parts)).digest();

/** The content hash of a file, by the definition in docs/reference/bucket-layout.md. */
export function contentHash(bytes: Buffer): string {
  const count = Math.max(1, Math.ceil(bytes.length / block));
  const blocks = Array.from({ length: count }, (_, i) => sha256(bytes.subarray(i * block, (i + 1) * block)));
  return count === 1 ? blocks[0]!.toString('hex') : `${root(blocks).toString('hex')}-${count}`;
}

function root(hashes: Buffer[]): Buffer {
  if (hashes.length === 1) return hashes[0]!;
  const half = 2 ** Math.floor(Math.log2(hashes.length - 1));
  return sha256(Buffer.of(1), root(hashes.slice(0, half)), root(hashes.slice(half)));
}
