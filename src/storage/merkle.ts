import { createHash } from 'node:crypto';

const sha256 = (...parts: (Buffer | string)[]) => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
};

/** Leaves and nodes are hashed with different prefixes, so that a node cannot be used as a leaf (RFC 6962, section 2.1). */
const leafPrefix = Buffer.of(0);
const nodePrefix = Buffer.of(1);

export const leafHash = (content: Buffer | string): Buffer => sha256(leafPrefix, content);
const nodeHash = (left: Buffer, right: Buffer): Buffer => sha256(nodePrefix, left, right);

/** The root of a Merkle tree as in RFC 6962, from its leaves in order. Keeps one hash for each level. */
export class MerkleTree {
  /** Complete subtrees, the largest first. */
  readonly #subtrees: { leaves: number; hash: Buffer }[] = [];

  /** `hash`: of the next leaf. */
  add(hash: Buffer): void {
    let added = { leaves: 1, hash };
    for (let last = this.#subtrees.at(-1); last?.leaves === added.leaves; last = this.#subtrees.at(-1)) {
      this.#subtrees.pop();
      added = { leaves: 2 * added.leaves, hash: nodeHash(last.hash, added.hash) };
    }
    this.#subtrees.push(added);
  }

  /** The root so far; without leaves, the SHA-256 of an empty input. */
  root(): Buffer {
    const hashes = this.#subtrees.map(({ hash }) => hash);
    return hashes.length === 0 ? sha256() : hashes.reduceRight((right, left) => nodeHash(left, right));
  }
}

/** The sibling hashes on the path from a leaf to the root, each with its side; in lower-case hex. */
export type MerklePath = ['left' | 'right', string][];

/** Collects the path of one leaf from the hashes of all `count` leaves, in order. */
export class MerklePathOf {
  /** The sibling subtrees, from the leaf up. */
  readonly #siblings: { side: 'left' | 'right'; from: number; to: number; tree: MerkleTree }[] = [];
  #next = 0;

  constructor(index: number, count: number) {
    for (let from = 0, to = count; to - from > 1; ) {
      const middle = from + 2 ** Math.floor(Math.log2(to - from - 1));
      const isLeft = index < middle;
      const tree = new MerkleTree();
      this.#siblings.unshift(
        isLeft ? { side: 'right', from: middle, to, tree } : { side: 'left', from, to: middle, tree },
      );
      if (isLeft) to = middle;
      else from = middle;
    }
  }

  add(hash: Buffer): void {
    const index = this.#next++;
    this.#siblings.find(({ from, to }) => index >= from && index < to)?.tree.add(hash);
  }

  path(): MerklePath {
    return this.#siblings.map(({ side, tree }) => [side, tree.root().toString('hex')]);
  }
}
