import type { AssetRecord } from '../../mirror/record.ts';
import { sidecarKeys, tombstoneKey } from '../../storage/keys.ts';
import { hashOf as hashOfId } from '../../store/removals/tombstones.ts';
import type { InventoryLine } from '../inventory-line.ts';
import type { Manifest } from '../manifest.ts';
import type { Attesting, Finding, SignedObject } from './finding.ts';
import { jsonAt, linesOf } from './read.ts';

/**
 * Whether an object may differ: its asset was mirrored again or erased after the inventory was written, or it has expired. Records
 * and tombstones are not signed, but a time that stays the same excuses nothing once there is another inventory.
 */
export async function excuses(at: Attesting, manifest: Manifest) {
  const erased = new Set<string>();
  for await (const line of linesOf(at, manifest, [manifest.tombstones])) erased.add(JSON.parse(line.toString()).erased);
  return async (
    { id, objects }: InventoryLine,
    { expiresAt }: SignedObject,
    { what }: Pick<Finding, 'what'>,
  ): Promise<boolean> => {
    if (what === 'missing' && expiresAt && Date.parse(expiresAt) <= Date.now()) return true;
    const hash = hashOfId(id);
    if (erased.has(hash)) return true;
    const tombstone = await jsonAt<{ erasedAt: string }>(at, tombstoneKey(hash));
    if (isAfter(tombstone?.erasedAt, manifest)) return true;
    return objects.length > 0 && isMirroredAfter(at, objects[0]!.key, manifest);
  };
}

/** Whether a record says that the media at `key` was mirrored after the inventory was written. */
export async function isMirroredAfter(at: Attesting, key: string, manifest: Manifest): Promise<boolean> {
  const record = await jsonAt<AssetRecord>(at, sidecarKeys.record(key));
  return isAfter(record?.mirroredAt, manifest);
}

function isAfter(time: string | undefined, { writtenAt }: Manifest): boolean {
  const at = Date.parse(time ?? '');
  return at > Date.parse(writtenAt) && at <= Date.now();
}
