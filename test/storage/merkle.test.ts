import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { leafHash, MerklePathOf, MerkleTree } from '../../src/storage/merkle.ts';

const sha256 = (...parts: Buffer[]) => createHash('sha256').update(Buffer.concat(parts)).digest();

/** The definition in RFC 6962, section 2.1. */
function rootByDefinition(leaves: Buffer[]): Buffer {
  if (leaves.length === 0) return sha256();
  if (leaves.length === 1) return sha256(Buffer.of(0), leaves[0]!);
  let half = 1;
  while (half * 2 < leaves.length) half *= 2;
  return sha256(Buffer.of(1), rootByDefinition(leaves.slice(0, half)), rootByDefinition(leaves.slice(half)));
}

function rootOf(leaves: Buffer[]): Buffer {
  const tree = new MerkleTree();
  for (const leaf of leaves) tree.add(leafHash(leaf));
  return tree.root();
}

describe('a Merkle tree', () => {
  test('the root is that of the test vectors of certificate transparency', () => {
    const leaves = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f'];
    const roots = leaves.map((_, n) => rootOf(leaves.slice(0, n + 1).map((hex) => Buffer.from(hex, 'hex'))));
    expect(roots[0]!.toString('hex')).toBe('6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d');
    expect(roots[7]!.toString('hex')).toBe('5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328');
  });

  test('the root of any number of leaves is that of the definition in RFC 6962', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 5 }), { maxLength: 70 }), (arrays) => {
        const leaves = arrays.map((array) => Buffer.from(array));
        expect(rootOf(leaves)).toEqual(rootByDefinition(leaves));
      }),
    );
  });

  test('the path of each leaf leads to the root, in as many steps as the tree has levels', () => {
    for (let count = 1; count < 40; count++) {
      const leaves = Array.from({ length: count }, (_, i) => Buffer.from([i]));
      for (let index = 0; index < count; index++) {
        const path = new MerklePathOf(index, count);
        for (const leaf of leaves) path.add(leafHash(leaf));
        const root = path.path().reduce((hash, [side, hex]) => {
          const other = Buffer.from(hex, 'hex');
          return side === 'left' ? sha256(Buffer.of(1), other, hash) : sha256(Buffer.of(1), hash, other);
        }, leafHash(leaves[index]!));
        expect(root).toEqual(rootOf(leaves));
        expect(path.path().length).toBeLessThanOrEqual(Math.ceil(Math.log2(count)));
      }
    }
  });
});
