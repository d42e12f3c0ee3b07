import { z } from 'zod';
import type { Asset } from '../store/schema.ts';
import type { OperationsDeps } from './deps.ts';
import { Refused } from './refused.ts';
import { assetStates } from './states.ts';
import { text } from './text.ts';

export const assetQuery = z.strictObject({
  connectionId: text.optional(),
  companyId: text.optional(),
  projectId: text.optional(),
  state: z.enum(assetStates).optional(),
  type: text.optional(),
  /** Those that the settings leave out; without it, what is `pending` in the sense of waiting has none of these. */
  leftOut: z.union([z.boolean(), z.stringbool()]).optional(),
  q: text.max(200).optional(),
  cursor: text.optional(),
  limit: z.coerce.number().int().min(1).max(500).default(50),
});
export type AssetQuery = z.input<typeof assetQuery>;

export function assetOperations({ store }: Pick<OperationsDeps, 'store'>) {
  return {
    /** A page of assets, by id. */
    async assets(query: AssetQuery) {
      const { cursor, limit, ...filter } = assetQuery.parse(query);
      const after = cursor === undefined ? undefined : Buffer.from(cursor, 'base64url').toString();
      if (after !== undefined && (after.includes('\0') || Buffer.from(after).toString('base64url') !== cursor)) {
        throw new Refused(
          400,
          'invalid_cursor',
          'The cursor is not one of ours. Pass nextCursor as it was given, or none.',
        );
      }
      const waiting = filter.state === 'pending' ? { leftOut: false } : {};
      const rows = await store.assets.search({ ...waiting, ...filter, after, limit: limit + 1 });
      const last = rows.length > limit ? rows[limit - 1] : undefined;
      return {
        assets: rows.slice(0, limit).map(describeAsset),
        nextCursor: last ? Buffer.from(last.id).toString('base64url') : null,
      };
    },
  };
}

function describeAsset(asset: Asset & { readable: boolean }) {
  const left = asset.nextAt !== null && !asset.readable ? 'no connection can read its company at present' : null;
  return {
    id: asset.id,
    name: asset.name,
    connectionId: asset.connectionId,
    companyId: asset.companyId,
    projectId: asset.projectId,
    type: asset.assetType,
    size: asset.size,
    uploadDate: asset.uploadDate,
    state: asset.state,
    reason: left ?? asset.reason,
    /** The setting that leaves it out. */
    leftOut: asset.leftOut,
    attempts: asset.attempts,
    nextAt: asset.nextAt?.toISOString() ?? null,
    key: asset.media?.key ?? null,
    bytes: asset.bytes,
    variant: asset.media?.variant ?? null,
    checksums: asset.media?.checksums ?? null,
    mirroredAt: asset.mirroredAt?.toISOString() ?? null,
    transcript: asset.transcriptState,
    thumbnail: asset.thumbnailState,
  };
}
