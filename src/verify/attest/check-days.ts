import { inventoryPrefix, ours } from '../../storage/keys.ts';
import { hashOf as hashOfId } from '../../store/removals/tombstones.ts';
import type { InventoryLine } from '../inventory-line.ts';
import type { Manifest } from '../manifest.ts';
import type { Attesting } from './finding.ts';
import { linesOf, sha256At } from './read.ts';
import type { Statement } from './read-chain.ts';

/** A line of an inventory: an asset, or one that was erased. */
export type Entry = InventoryLine | { erased: string; erasedAt: string };

/**
 * Compares the inventory of each day with its manifest, and with the inventory of the day before: an asset may only leave it if it
 * was gone in the library, or was erased. Returns the last intact one, and how many there are.
 */
export async function checkDays(
  at: Attesting,
  statements: Statement[],
): Promise<{ last: Manifest | undefined; days: number }> {
  // Of several manifests of a day, the last one counts.
  const byDay = new Map(statements.map((statement) => [statement.manifest.day, statement]));
  const newest = statements.at(-1)?.manifest.day;
  let last: Manifest | undefined;
  let before: Set<string> | undefined;
  let days = 0;
  for (const [day, statement] of byDay) {
    const state = await checkDay(at, statement);
    if (state === 'removed' && day === newest) at.found({ what: 'missing', key: inventoryPrefix(day), after: day });
    if (state !== 'intact') continue;
    days++;
    before = await compareWithDayBefore(at, statement.manifest, before, last?.day);
    last = statement.manifest;
  }
  for (const day of await daysIn(at)) {
    if (!byDay.has(day)) at.found({ what: 'extra', key: inventoryPrefix(day), after: null });
  }
  return { last, days };
}

/** Whether the inventory of a manifest is there, as it was signed. */
export const isIntact = async (at: Attesting, statement: Statement) => (await checkDay(at, statement)) === 'intact';

async function checkDay(at: Attesting, { manifest, sha256 }: Statement): Promise<'intact' | 'altered' | 'removed'> {
  const { day, files, parquet, tombstones } = manifest;
  const found = await sha256At(at, `${inventoryPrefix(day)}manifest.json`);
  if (found === undefined) return 'removed';
  let isIntact = true;
  for (const { name, sha256: signed } of [{ name: 'manifest.json', sha256 }, ...files, ...parquet, tombstones]) {
    const key = `${inventoryPrefix(day)}${name}`;
    const actual = await sha256At(at, key);
    if (actual === signed) continue;
    isIntact = false;
    at.found({ what: actual === undefined ? 'missing' : 'altered', key, after: day });
  }
  return isIntact ? 'intact' : 'altered';
}

/** Returns the ids of this day's assets that may not leave without a reason. */
async function compareWithDayBefore(
  at: Attesting,
  manifest: Manifest,
  before: Set<string> = new Set(),
  dayBefore: string | undefined,
): Promise<Set<string>> {
  const ids = new Set<string>();
  const missing = new Set(before);
  const erased = new Set<string>();
  for await (const line of linesOf(at, manifest)) {
    const entry = JSON.parse(line.toString()) as Entry;
    if ('erased' in entry) {
      erased.add(entry.erased);
      continue;
    }
    missing.delete(entry.id);
    if (entry.state !== 'gone') ids.add(entry.id);
  }
  for (const id of missing) {
    if (!erased.has(hashOfId(id)))
      at.found({ what: 'missing', key: `asset ${id} in the inventory`, after: dayBefore! });
  }
  return ids;
}

async function daysIn({ storage, signal }: Attesting): Promise<Set<string>> {
  const prefix = `${ours}inventory/`;
  const days = new Set<string>();
  for await (const { key } of storage.list(prefix, { signal })) days.add(key.slice(prefix.length).split('/')[0]!);
  return days;
}
