import { createHash, type Hash } from 'node:crypto';
import { crc32Of } from './crc32.ts';
import { MerkleTree } from './merkle.ts';

/** The length of a block of a content hash. */
export const blockBytes = 16 * 2 ** 20;

/** The SHA-256 of each block of a body, in lower-case hex. */
export class BlockHashes {
  readonly #done: string[] = [];
  #hash: Hash = createHash('sha256');
  #left = blockBytes;

  update(chunk: Buffer): void {
    for (let from = 0; from < chunk.length; ) {
      // A block begins only when a byte follows, so the last one is never empty.
      if (this.#left === 0) this.#begin();
      const piece = chunk.subarray(from, from + this.#left);
      this.#hash.update(piece);
      this.#left -= piece.length;
      from += piece.length;
    }
  }

  #begin(): void {
    this.#done.push(this.#hash.digest('hex'));
    this.#hash = createHash('sha256');
    this.#left = blockBytes;
  }

  /** All blocks so far. */
  blocks(): string[] {
    return [...this.#done, this.#hash.copy().digest('hex')];
  }
}

/**
 * The content hash of a file. One block: its SHA-256. Several: the root of the Merkle tree over them, a hyphen and their number.
 * Leaves need no prefix: the number of blocks and the length of the file already distinguish them from nodes.
 */
export function contentHashOf(blocks: string[]): string {
  if (blocks.length === 1) return blocks[0]!;
  const tree = new MerkleTree();
  for (const block of blocks) tree.add(Buffer.from(block, 'hex'));
  return `${tree.root().toString('hex')}-${blocks.length}`;
}

/** The checksums of an uploaded file. Without a content hash if its parts do not consist of whole blocks, or were not hashed. */
export function checksumsOfParts(
  { partBytes }: { partBytes: number },
  parts: { bytes: number; crc32: string; blocks: string[] | null }[],
) {
  const blocks = parts.flatMap((part) => part.blocks ?? []);
  const isAligned = parts.length === 1 || partBytes % blockBytes === 0;
  const isHashed = isAligned && parts.every((part) => part.blocks);
  return { crc32: crc32Of(parts), ...(isHashed && { sha256: contentHashOf(blocks) }) };
}
