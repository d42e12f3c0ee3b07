import type { Log } from '../log.ts';
import type { SelectableRow } from '../store/assets/filters.ts';
import type { Store } from '../store/store.ts';
import { leavesOutCompany, leftOutBy, leftOutReason, type Selection, selectionOf } from './filters.ts';

/** INCLUDE_ASSET_TYPES and EXCLUDE_ASSET_TYPES. */
export interface SelectionDefaults {
  includeTypes: string[];
  excludeTypes: string[];
}

export interface Reselected {
  /** Assets that were to be mirrored, and are no more. */
  leftOut: number;
  /** Assets that were left out, and are mirrored now. */
  letIn: number;
}

const pageSize = 2000;

/**
 * Holds the assets of a connection against its settings, page by page: what they leave out now is no longer due, unless
 * another connection that can read it wants it; what they let in is due at once. What is in the bucket is not touched.
 * May be broken off anywhere and run again.
 */
export async function reselect(
  { store, log, ...defaults }: { store: Store; log: Log } & SelectionDefaults,
  connectionId: string,
  signal: AbortSignal,
): Promise<Reselected> {
  const found: Reselected = { leftOut: 0, letIn: 0 };
  const connection = await store.connections.get(connectionId);
  if (!connection || connection.status === 'disconnected') return found;
  const selection = selectionOf(connection.settings, defaults);
  for (const company of await store.connections.companies([connectionId])) {
    const others = await otherReaders(store, company.id, connectionId, defaults);
    for (let after = ''; ; ) {
      signal.throwIfAborted();
      const page = await store.selection.page({ connectionId, companyId: company.id, after, limit: pageSize });
      const out: { id: string; rule: string; reason: string }[] = [];
      const wanted: string[] = [];
      const over = new Map<string, string[]>();
      for (const row of page) {
        const rule = leftOutBy(selection, row);
        if (rule === null) {
          if (row.leftOut !== null) wanted.push(row.id);
        } else if (row.connectionId === connectionId && row.leftOut !== rule) {
          const heir = heirOf(others, row);
          if (heir === undefined) out.push({ id: row.id, rule, reason: leftOutReason(rule) });
          else over.set(heir, [...(over.get(heir) ?? []), row.id]);
        }
      }
      for (const [heir, ids] of over) await store.selection.handOver(heir, ids);
      found.letIn += await store.selection.letIn(connectionId, wanted);
      found.leftOut += await store.selection.leaveOut(out);
      if (page.length < pageSize) break;
      after = page.at(-1)!.id;
    }
  }
  await store.selection.settled(connectionId, connection.settings);
  if (found.leftOut + found.letIn > 0) log.info({ connectionId, ...found }, 'settings applied to what is not mirrored');
  return found;
}

/** Which connections, besides this one, want what of a company; who was first comes first. */
async function otherReaders(store: Store, companyId: string, except: string, defaults: SelectionDefaults) {
  const readers = await store.selection.readers(companyId);
  return readers
    .filter(({ id }) => id !== except)
    .map(({ id, settings }) => ({ id, selection: selectionOf(settings, defaults) }))
    .filter(({ selection }) => !leavesOutCompany(selection, companyId));
}

function heirOf(
  readers: { id: string; selection: Selection }[],
  asset: Pick<SelectableRow, 'companyId' | 'projectId' | 'assetType'>,
): string | undefined {
  return readers.find(({ selection }) => leftOutBy(selection, asset) === null)?.id;
}

/**
 * What the settings make of an asset whose turn has come: `rule` leaves it out, and `heir`, if there is one, wants it.
 * Undefined: it is wanted, or in the bucket, which is kept whole.
 */
export async function leftOutNow(
  { store, selection: defaults }: { store: Store; selection: SelectionDefaults },
  asset: Pick<SelectableRow, 'companyId' | 'projectId' | 'assetType'> & {
    connectionId: string;
    media: object | null;
    settings: Record<string, unknown>;
  },
): Promise<{ rule: string; heir: string | undefined } | undefined> {
  if (asset.media !== null) return undefined;
  const rule = leftOutBy(selectionOf(asset.settings, defaults), asset);
  if (rule === null) return undefined;
  return { rule, heir: heirOf(await otherReaders(store, asset.companyId, asset.connectionId, defaults), asset) };
}
