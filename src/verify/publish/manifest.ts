/** The `manifest.json` of an inventory. */
export interface Manifest {
  version: 1;
  day: string;
  storage: string;
  writtenAt: string;
  /** A position in the feed of changes. All changes that the inventory may lack come after it. */
  cursor: string;
  assets: number;
  byState: Record<string, number>;
  /** Assets skipped by a filter; `byState` does not count them. */
  skipped: number;
  objects: number;
  bytes: number;
  /** Superseded files that are kept, and the bytes of all their objects. */
  versions: { count: number; bytes: number };
  files: InventoryFile[];
  /** `parquet[i]` has the assets of `files[i]` as a table. */
  parquet: InventoryFile[];
  /** Assets that were erased on purpose. */
  tombstones: Omit<InventoryFile, 'assets'> & { count: number };
  /** The root of the Merkle tree over all lines: those of `files`, then those of `tombstones`. */
  root: string;
  /** The place of the manifest in the chain, from 1, and the SHA-256 of the manifest before it. */
  number: number;
  previous: string | null;
  /** The id of the key that signs the manifest; null: it is not signed. */
  keyId: string | null;
}

interface InventoryFile {
  name: string;
  assets: number;
  bytes: number;
  sha256: string;
}

/** How many assets of an inventory were pending or transferring when it was written. */
export function unfinishedIn({ byState }: Manifest): number {
  return (byState.pending ?? 0) + (byState.transferring ?? 0);
}

/** All files of an inventory but `SHA256SUMS`. `sha256`: of its `manifest.json`. */
export const filesOf = ({ files, parquet, tombstones }: Manifest, sha256: string) => [
  ...files,
  ...parquet,
  tombstones,
  { name: 'manifest.json', sha256 },
];

/** The `SHA256SUMS` of an inventory. */
export const sumsOf = (manifest: Manifest, sha256: string) =>
  filesOf(manifest, sha256)
    .map((file) => `${file.sha256}  ${file.name}\n`)
    .join('');
