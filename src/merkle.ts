import { createHash } from 'node:crypto';

const sha256 = (...parts: (Buffer | string)[]) => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
};

/** Leaves and nodes are hashed with different prefixes, so that none can pass for the other (RFC 6962, section 2.1). */
const leafPrefix = Buffer.of(0);
const nodePrefix = Buffer.of(1);

export const leafHash = (content: Buffer | string): Buffer => sha256(leafPrefix, content);
export const nodeHash = (left: Buffer, right: Buffer): Buffer => sha256(nodePrefix, left, right);

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

  /** Of no leaves: the SHA-256 of nothing. */
  root(): Buffer {
    const hashes = this.#subtrees.map(({ hash }) => hash);
    return hashes.length === 0 ? sha256() : hashes.reduceRight((right, left) => nodeHash(left, right));
  }
}
