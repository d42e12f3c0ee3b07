import { isVersionRecord } from '../../mirror/read-record.ts';
import type { AssetRecord } from '../../mirror/record.ts';
import { idSegment, sidecarKeys, tombstoneKey, versionKeys } from '../../storage/keys.ts';
import { hashOf as hashOfId } from '../../store/removals/tombstones.ts';
import type { InventoryLine } from '../publish/inventory-line.ts';
import type { Manifest } from '../publish/manifest.ts';
import type { Context, Finding, SignedObject } from './finding.ts';
import { jsonAt } from './read.ts';

/** The longest key of S3, in bytes. */
const longestKey = 1024;

/**
 * Whether an object differs from the inventory because it was written, replaced or erased later, or had to be removed by now:
 * records, versions and tombstones say so. They are not signed, so this is no proof.
 */
export async function isLaterChange(
  context: Context,
  manifest: Manifest,
  { line, object, what }: { line: InventoryLine; object: SignedObject } & Pick<Finding, 'what'>,
): Promise<boolean> {
  // The file of the asset was being replaced while the inventory was written.
  if (line.state === 'transferring') return true;
  if (what === 'missing') {
    if (isPast(object.expiresAt) || isPast(line.removedAt)) return true;
    const tombstone = await jsonAt<{ erasedAt: string }>(context, tombstoneKey(hashOfId(line.id)));
    if (isAfter(tombstone?.erasedAt, manifest)) return true;
  }
  const [media] = line.objects;
  if (media && (await isWrittenAfter(context, media.key, manifest))) return true;
  return await isReplacedAfter(context, line.id, manifest);
}

/** Whether the record of the media at `key` says that it was written after the inventory. */
export async function isWrittenAfter(context: Context, key: string, manifest: Manifest): Promise<boolean> {
  const recordKey = sidecarKeys.record(key);
  // An extra object may have such a long key that it cannot have a record.
  const record = Buffer.byteLength(recordKey) <= longestKey ? await jsonAt<AssetRecord>(context, recordKey) : undefined;
  return isAfter(record?.writtenAt, manifest);
}

/** Whether a file of the asset was replaced after the inventory, possibly by one with another key. */
async function isReplacedAfter(context: Context, id: string, manifest: Manifest): Promise<boolean> {
  for await (const { key } of context.storage.list(`${versionKeys.prefix}${idSegment(id)}/`, {
    signal: context.signal,
  })) {
    if (!isVersionRecord(key)) continue;
    const record = await jsonAt<{ replacedAt: string }>(context, key);
    if (isAfter(record?.replacedAt, manifest)) return true;
  }
  return false;
}

/** Times are ISO 8601 in UTC with milliseconds, so they sort as text. */
const isTime = (time: unknown) => typeof time === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(time);

const isAfter = (time: string | undefined, { writtenAt }: Manifest) =>
  isTime(time) && time! > writtenAt && time! <= new Date().toISOString();

const isPast = (time: string | null | undefined) => Boolean(time) && Date.parse(time!) <= Date.now();
