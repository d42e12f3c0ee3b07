import { z } from 'zod';
import type { Operator } from '../../floor/roles.ts';
import { dayMs } from '../../floor/units.ts';
import type { Asset } from '../../store/database/schema.ts';
import { holdKinds } from '../../store/removals/holds.ts';
import type { Store } from '../../store/store.ts';
import { existingConnection, heldChanges } from '../connections/connections.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, isoTimes, text, time } from '../fields.ts';
import { Refused } from '../refused.ts';

/** Assets that are named one by one. */
const mostNamed = 100;

export const removalsAnswer = z
  .object({
    goneRetentionSeconds: z.number().nullable().describe('GONE_RETENTION; null: forever.'),
    nextWeek: z
      .object({
        assets: count,
        bytes: count,
        first: z.array(
          z.object({
            id: z.string(),
            name: z.string().nullable(),
            companyId: z.string(),
            bytes: count.nullable(),
            at: time.describe('When its objects are removed, at the earliest.'),
          }),
        ),
      })
      .describe(
        'The assets to remove from the bucket in the next 7 days; `first`: up to 100 of them. An asset stays if it returns to the library, is protected, or no active connection lists its company.',
      ),
    heldCompanies: z
      .array(heldChanges.extend({ companyId: z.string(), companyName: z.string(), connectionId: z.string() }))
      .describe(
        'Companies that would lose too many assets within a day. None of their assets is removed until an operator accepts it.',
      ),
  })
  .meta({ id: 'Removals' });

const holdTarget = { kind: z.enum(holdKinds), ids: z.array(text).min(1).max(1000) };
export const holdRequest = z.strictObject({ ...holdTarget, reason: text.optional() }).meta({ id: 'HoldRequest' });
export const releaseRequest = z.strictObject(holdTarget).meta({ id: 'ReleaseRequest' });
export type HoldRequest = z.infer<typeof holdRequest>;

export const changedHolds = z.object({ changed: count }).meta({ id: 'ChangedHolds' });
export const holdList = z
  .object({
    holds: z.array(
      z.object({
        kind: z.enum(holdKinds),
        id: z.string(),
        reason: z.string().nullable(),
        heldBy: z.string(),
        heldAt: time,
      }),
    ),
  })
  .meta({ id: 'HoldList' });

/** What GONE_RETENTION removes in the next week. */
export async function nextWeekOf(store: Store, goneRetention: number) {
  const isForever = !Number.isFinite(goneRetention);
  const { assets, bytes, first, held } = isForever
    ? { assets: 0, bytes: 0, first: [], held: [] }
    : await store.removals.upcoming(goneRetention, 7 * dayMs, mostNamed);
  return {
    goneRetentionSeconds: isForever ? null : goneRetention / 1000,
    nextWeek: { assets, bytes, first: first.map(isoTimes) },
    heldCompanies: held.map(({ held: what, ...of }) => ({ ...of, kind: 'removed' as const, ...what })),
  };
}

/** When the objects of an asset that is gone are removed; null: they stay. */
export function removalOf({ goneAt, media }: Pick<Asset, 'goneAt' | 'media'>, goneRetention: number): Date | null {
  return goneAt && media && Number.isFinite(goneRetention) ? new Date(goneAt.getTime() + goneRetention) : null;
}

/** @throws Refused 404 if the asset was erased */
export async function requireNotErased(store: Store, assetId: string): Promise<void> {
  const tombstone = await store.removals.tombstone(assetId);
  if (!tombstone) return;
  const { erasedAt, erasedBy, reason } = tombstone;
  const how = `on ${erasedAt.toISOString()} by ${erasedBy}: ${reason}`;
  throw new Refused(404, 'asset_erased', `The asset was erased ${how}. It is never mirrored again.`);
}

export function removalOperations({ store, goneRetention }: Pick<OperationsDeps, 'store' | 'goneRetention'>) {
  return {
    removals: () => nextWeekOf(store, goneRetention),

    async holds() {
      return { holds: (await store.removals.holds()).map(isoTimes) };
    },

    /**
     * Protects assets, projects or connections from removal.
     * @throws Refused 404, or 409 if an asset is being removed or erased already. Then the holds are saved, too.
     */
    async hold({ kind, ids, reason }: HoldRequest, operator: Pick<Operator, 'name'>) {
      await requireKnown(store, kind, ids);
      const changed = await store.removals.hold({ kind, ids, reason: reason ?? null, by: operator.name });
      const tooLate = await store.removals.heldTooLate({ kind, ids });
      if (tooLate.length === 0) return { changed };
      const lost = `${tooLate.join(', ')}: being removed or erased already`;
      throw new Refused(409, 'being_removed', `Protected from removal, but too late for these assets: ${lost}.`);
    },

    async release({ kind, ids }: z.infer<typeof releaseRequest>) {
      return { changed: await store.removals.release({ kind, ids }) };
    },
  };
}

/** @throws Refused 404 if an asset or a connection does not exist, or no asset has the project */
async function requireKnown(store: Store, kind: HoldRequest['kind'], ids: string[]): Promise<void> {
  if (kind === 'connection') for (const id of ids) await existingConnection(store, id);
  const unknown =
    kind === 'asset'
      ? await store.removals.unknownAssets(ids)
      : kind === 'project'
        ? await store.assets.namesOfNoAsset('projectId', ids)
        : [];
  if (unknown.length === 0) return;
  const what = kind === 'asset' ? 'There is no asset' : 'No asset has the project';
  throw new Refused(404, `${kind}_not_found`, `${what} ${unknown.slice(0, 10).join(', ')} in the database.`);
}
