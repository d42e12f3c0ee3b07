import type { Storage } from '../../storage/storage.ts';
import type { InventoryLine } from '../publish/inventory-line.ts';

/** An object as an inventory has it. */
export type SignedObject = InventoryLine['objects'][number] & {
  versionId?: string | undefined;
  /** When it is removed as a superseded file. */
  expiresAt?: string | null;
};

/** Something that is not as it was signed, or not proven. */
export interface Finding {
  what: 'altered' | 'missing' | 'extra' | 'unproven';
  /** The key of an object, or a description. */
  key: string;
  /** The last day for which a signed manifest proves the earlier state; null: no day is proven. */
  after: string | null;
  why?: string | undefined;
}

export interface Context {
  storage: Pick<Storage, 'get' | 'list' | 'name'>;
  /** Whether it has versions of objects. A downloaded bucket has only the current ones. */
  hasVersions: boolean;
  found: (finding: Finding) => void;
  signal: AbortSignal;
}
