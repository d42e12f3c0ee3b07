import { z } from 'zod';
import { versionName } from '../../storage/keys.ts';
import type { AssetVersion } from '../../store/database/schema.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, reasonAnswer, shownReason, time } from '../fields.ts';
import { existingAsset } from './assets.ts';

export const versionList = z
  .object({
    versions: z.array(
      z
        .object({
          version: z.string().describe('Its name, for `asset-mirror restore --version`.'),
          mirroredAt: time,
          replacedAt: time,
          expiresAt: time.nullable().describe('When KEEP_VERSIONS lets it be removed; null: never.'),
          reason: reasonAnswer.describe('Why it was superseded.'),
          bytes: count.describe('Size of all its files.'),
          media: z.object({ key: z.string(), bytes: count, checksums: z.record(z.string(), z.string()) }),
        })
        .meta({ id: 'AssetVersion' }),
    ),
  })
  .meta({ id: 'AssetVersionList' });

export function versionOperations({ store, keepVersions }: Pick<OperationsDeps, 'store' | 'keepVersions'>) {
  return {
    /** The superseded files of an asset that are kept, newest first. */
    async versions(id: string) {
      await existingAsset(store, id);
      const versions = await store.versions.ofAsset(id);
      return { versions: versions.map((version) => answerOf(version, keepVersions)) };
    },
  };
}

function answerOf({ replacedAt, mirroredAt, reason, bytes, media }: AssetVersion, keepMs: number) {
  const { key, bytes: mediaBytes, checksums } = media;
  return {
    version: versionName(replacedAt),
    mirroredAt: mirroredAt.toISOString(),
    replacedAt: replacedAt.toISOString(),
    expiresAt: keepMs === Number.POSITIVE_INFINITY ? null : new Date(replacedAt.getTime() + keepMs).toISOString(),
    reason: shownReason(reason)!,
    bytes,
    media: { key, bytes: mediaBytes, checksums },
  };
}
