import { inventoryPrefix, ours } from '../../storage/keys.ts';
import { hashOf as hashOfId } from '../../store/removals/tombstones.ts';
import { sha256Of } from '../publish/chain.ts';
import type { InventoryLine } from '../publish/inventory-line.ts';
import { filesOf, type Manifest, sumsOf } from '../publish/manifest.ts';
import type { Context } from './finding.ts';
import { KeySet } from './key-set.ts';
import { linesOf, sha256At } from './read.ts';
import type { Statement } from './read-chain.ts';

/** A line of an inventory: an asset, or one that was erased. */
export type Entry = InventoryLine | { erased: string; erasedAt: string };

/**
 * Compares the inventory of each day with its manifest, and with the inventory of the day before: an asset with objects may only
 * leave it if it was gone in the library, or was erased. Returns the last intact one, and how many there are.
 */
export async function checkDays(
  context: Context,
  statements: Statement[],
): Promise<{ last: Manifest | undefined; days: number }> {
  // Of several manifests of a day, the last one counts.
  const byDay = new Map(statements.map((statement) => [statement.manifest.day, statement]));
  let last: Manifest | undefined;
  let before: Manifest | undefined;
  let days = 0;
  for (const statement of statements) {
    const { day } = statement.manifest;
    if (byDay.get(day) !== statement) continue;
    const state = await checkDay(context, statement);
    const isNewest = statement === statements.at(-1);
    if (state === 'removed' && isNewest) context.found({ what: 'missing', key: inventoryPrefix(day), after: day });
    const manifest = state === 'intact' ? statement.manifest : undefined;
    if (before && manifest) await compareDays(context, before, manifest);
    if (manifest) days++;
    last = manifest ?? last;
    // After a missing or altered inventory, the next one is not compared: the lost one may have said why an asset left.
    before = manifest;
  }
  for (const day of await daysIn(context)) {
    if (!byDay.has(day)) context.found({ what: 'extra', key: inventoryPrefix(day), after: null });
  }
  return { last, days };
}

/** Whether the inventory of a manifest is there, as it was signed. One without SHA256SUMS is not complete, or was removed. */
export async function checkDay(
  context: Context,
  { manifest, sha256 }: Statement,
): Promise<'intact' | 'altered' | 'removed'> {
  const { day } = manifest;
  const prefix = inventoryPrefix(day);
  const sums = await sha256At(context, `${prefix}SHA256SUMS`);
  if (sums === undefined) return 'removed';
  let isIntact = true;
  const wanted = [...filesOf(manifest, sha256), { name: 'SHA256SUMS', sha256: sha256Of(sumsOf(manifest, sha256)) }];
  for (const { name, sha256: signed } of wanted) {
    const key = `${prefix}${name}`;
    const actual = await sha256At(context, key);
    if (actual === signed) continue;
    isIntact = false;
    context.found({ what: actual === undefined ? 'missing' : 'altered', key, after: day });
  }
  return isIntact ? 'intact' : 'altered';
}

/** Reports assets that left the inventory without a reason. */
async function compareDays(context: Context, before: Manifest, manifest: Manifest): Promise<void> {
  /** Hashes of ids. */
  const there = new KeySet();
  for await (const line of linesOf(context, manifest)) {
    const entry = JSON.parse(line.toString()) as Entry;
    there.add('erased' in entry ? entry.erased : hashOfId(entry.id));
  }
  for await (const line of linesOf(context, before)) {
    const entry = JSON.parse(line.toString()) as Entry;
    if ('erased' in entry || entry.state === 'gone' || entry.objects.length === 0) continue;
    if (there.has(hashOfId(entry.id))) continue;
    context.found({ what: 'missing', key: `asset ${entry.id} in the inventory`, after: before.day });
  }
}

async function daysIn({ storage, signal }: Context): Promise<Set<string>> {
  const prefix = `${ours}inventory/`;
  const days = new Set<string>();
  for await (const { key } of storage.list(prefix, { signal })) days.add(key.slice(prefix.length).split('/')[0]!);
  return days;
}
