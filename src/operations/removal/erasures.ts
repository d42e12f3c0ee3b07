import { z } from 'zod';
import type { Operator } from '../../floor/roles.ts';
import type { ErasureScope } from '../../store/removals/erasures.ts';
import type { Store } from '../../store/store.ts';
import { existingConnection } from '../connections/connections.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, isoTimes, text, time } from '../fields.ts';
import { Refused } from '../refused.ts';

export const erasureScope = z
  .strictObject({
    assetIds: z.array(text).min(1).max(1000).optional(),
    projectId: text.optional(),
    companyId: text.optional(),
    connectionId: text.optional(),
  })
  .meta({ id: 'ErasureScope' });
export const erasureRequest = erasureScope.extend({ reason: text }).meta({ id: 'ErasureRequest' });
export type ErasureScopeRequest = z.infer<typeof erasureScope>;

export const erasurePreview = z
  .object({
    assets: count,
    bytes: count.describe(
      'Size of their current media. Sidecars and superseded files are removed, too, but not counted here.',
    ),
    held: count.describe('Assets that a hold protects: they stay.'),
  })
  .meta({ id: 'ErasurePreview' });

const summary = z.object({
  id: z.string(),
  status: z.enum(['running', 'done']),
  reason: z.string(),
  requestedBy: z.string(),
  requestedAt: time,
  finishedAt: time.nullable(),
  assets: z.object({ waiting: count, erased: count, held: count }),
  objects: count.describe('Objects and versions that were in the bucket.'),
  bytes: count,
  left: count.describe('Those of them that remain in the bucket, because they are locked.'),
});
export const erasureAnswer = summary.meta({ id: 'Erasure' });
export const erasureList = z.object({ erasures: z.array(erasureAnswer) }).meta({ id: 'ErasureList' });

export const certificateAnswer = summary
  .extend({
    version: z.literal(1),
    erased: z.array(
      z.object({
        sha256: z.string().describe("SHA-256 of the asset's id."),
        objects: count,
        bytes: count,
        erasedAt: time,
      }),
    ),
    notErased: z.array(z.object({ sha256: z.string(), reason: z.literal('held') })),
    remaining: z.array(
      z.object({
        key: z.string(),
        versionId: z.string().nullable(),
        bytes: count,
        lockedUntil: time.nullable().describe('null: the store does not say.'),
      }),
    ),
  })
  .meta({ id: 'ErasureCertificate' });

export function erasureOperations({ store }: Pick<OperationsDeps, 'store'>) {
  const erasure = async (id: string) => {
    const [found] = await store.removals.erasures(id);
    if (!found) {
      throw new Refused(404, 'erasure_not_found', `There is no erasure ${id}. \`asset-mirror erasures\` lists them.`);
    }
    return describe(found);
  };
  return {
    /** What an erasure would remove. Changes nothing. */
    async previewErasure(request: ErasureScopeRequest) {
      const { protectedAssets, ...preview } = await store.removals.previewErasure(await scopeOf(store, request));
      return { ...preview, held: protectedAssets };
    },

    /** Begins to erase assets for good. A worker does it, also if this process ends. */
    async erase({ reason, ...request }: z.infer<typeof erasureRequest>, operator: Pick<Operator, 'name'>) {
      const scope = await scopeOf(store, request);
      return erasure(await store.removals.requestErasure({ scope, reason, by: operator.name }));
    },

    erasure,
    async erasures() {
      return { erasures: (await store.removals.erasures()).map(describe) };
    },

    /** What an erasure has removed, and what it could not remove. */
    async certificate(id: string) {
      const found = await erasure(id);
      const { assets, left } = await store.removals.erasureDetails(id);
      return {
        version: 1 as const,
        ...found,
        erased: assets
          .filter(({ state }) => state === 'erased')
          .map(({ hash, objects, bytes, erasedAt }) => ({
            sha256: hash,
            objects: objects ?? 0,
            bytes: bytes ?? 0,
            erasedAt: erasedAt!.toISOString(),
          })),
        notErased: assets
          .filter(({ state }) => state === 'protected')
          .map(({ hash }) => ({ sha256: hash, reason: 'held' as const })),
        remaining: left.map(isoTimes),
      };
    },
  };
}

/** @throws Refused 400 unless exactly one thing is named, 404 if it does not exist */
async function scopeOf(store: Store, request: ErasureScopeRequest): Promise<ErasureScope> {
  const [scope, ...more] = Object.entries(request)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => ({ [name]: value }) as unknown as ErasureScope);
  if (!scope || more.length > 0) {
    throw new Refused(400, 'invalid_request', 'Name either assets, a project, a company or a connection.');
  }
  if ('connectionId' in scope) await existingConnection(store, scope.connectionId);
  if ('assetIds' in scope) {
    const unknown = await store.removals.unknownAssets(scope.assetIds);
    if (unknown.length > 0) {
      const named = unknown.slice(0, 10).join(', ');
      throw new Refused(404, 'asset_not_found', `There is no asset ${named} in the database. Nothing was erased.`);
    }
  } else {
    const { assets, protectedAssets } = await store.removals.previewErasure(scope);
    if (assets + protectedAssets === 0)
      throw new Refused(404, 'nothing_to_erase', 'The database has no asset of this project, company or connection.');
  }
  return scope;
}

function describe(found: Awaited<ReturnType<Store['removals']['erasures']>>[number]) {
  const { waiting, erased, protectedAssets, ...rest } = found;
  return {
    ...isoTimes(rest),
    status: rest.finishedAt ? ('done' as const) : ('running' as const),
    assets: { waiting, erased, held: protectedAssets },
  };
}
