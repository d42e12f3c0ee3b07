import type { Storage } from '../../storage/storage.ts';
import type { InventoryLine } from '../inventory-line.ts';

/** An object as an inventory has it. */
export type SignedObject = InventoryLine['objects'][number] & {
  versionId?: string | undefined;
  /** When it is removed as a superseded file. */
  expiresAt?: string | null;
};

/** Something that is not as it was signed. */
export interface Finding {
  what: 'altered' | 'missing' | 'extra';
  /** The key of an object, or what is concerned. */
  key: string;
  /** The last day of which a signed manifest proves something else; null: before the first one. */
  after: string | null;
  why?: string | undefined;
}

export interface Attesting {
  storage: Pick<Storage, 'get' | 'list' | 'name'>;
  found: (finding: Finding) => void;
  signal: AbortSignal;
}
