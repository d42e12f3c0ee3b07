import { z } from 'zod';
import { reasonOf } from '../../floor/errors.ts';
import type { Reason } from '../../floor/reason-codes.ts';
import { renderReason } from '../../floor/reasons.ts';
import { answerWithin, within } from '../../floor/within.ts';
import { assetStates } from '../../store/counts/states.ts';
import type { Asset, UploadPart } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import { checkAsset } from '../../verify/compare-asset.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, isoOf, numberOf, reasonAnswer, shownReason, time } from '../fields.ts';
import { Refused } from '../refused.ts';
import { removalOf, requireNotErased } from '../removal/removals.ts';
import { explanationOf } from './explanation.ts';
import { timelineEntry, timelineOf } from './timeline.ts';

/** If the bucket answers later, the explanation does not mention it. */
const patienceMs = 500;

/** If the bucket answers later about the objects of an asset, the explanation says so. */
const checkMs = 3000;

const checksums = z.record(z.string(), z.string());
const variant = z.enum(['original', 'mp4']);

const facts = z.object({
  id: z.string(),
  name: z.string().nullable(),
  connectionId: z.string().nullable().describe('The connection that mirrors it; null: no connection can read it.'),
  companyId: z.string(),
  projectId: z.string().nullable(),
  projectName: z.string().nullable().describe('The name of the project when the asset was last listed.'),
  type: z.string().nullable(),
  size: z.number().nullable().describe('As the library declares it, in bytes.'),
  uploadDate: time.nullable(),
  state: z.enum(assetStates),
  reason: reasonAnswer.nullable().describe('Why it is not mirrored, or not complete.'),
  skipped: z.boolean().describe('A filter skips it: see `reason`.'),
  attempts: count,
  nextAt: time.nullable().describe('The next try or follow-up check; null: none.'),
  key: z.string().nullable(),
  bytes: count.nullable(),
  variant: variant.nullable(),
  checksums: checksums.nullable().describe('`crc32`; `md5`, if the store compares it; `sha256`: the content hash.'),
  mirroredAt: time.nullable(),
  transcript: z.enum(['none', 'pending', 'mirrored', 'no_speech', 'gave_up']),
  thumbnail: z.enum(['none', 'pending', 'mirrored', 'gave_up']),
});

export const assetSummary = facts.meta({ id: 'AssetSummary' });

export const assetAnswer = facts
  .extend({
    mimeType: z.string().nullable(),
    firstSeenAt: time,
    working: z.boolean().describe('A worker has leased it.'),
    verifiedAt: time.nullable().describe('When the checksum was last verified.'),
    etag: z.string().nullable().describe('ETag of the media in the bucket.'),
    recordKey: z.string().nullable().describe('Its .asset.json; null: the copy is incomplete or superseded.'),
    sidecarFiles: z
      .array(
        z.object({
          key: z.string(),
          bytes: count,
          crc32: z.string(),
          sha256: z.string().nullable().describe('The content hash; null: not known yet.'),
          etag: z.string().nullable(),
        }),
      )
      .describe('The sidecars in the bucket.'),
    upload: z
      .object({
        key: z.string(),
        variant,
        bytes: count,
        partBytes: count,
        stored: z.object({ parts: count, bytes: count }),
      })
      .nullable()
      .describe('An unfinished upload in parts.'),
    held: z
      .boolean()
      .describe('A hold (`asset-mirror hold`) protects it from removal. A held company is something else.'),
    explanation: z
      .array(z.string())
      .describe('Where it is, or why it is not mirrored, what it waits for, until when, and what to do.'),
    timeline: z.array(timelineEntry).describe('Its history, oldest first; kept for 30 days.'),
  })
  .meta({ id: 'Asset' });

type Deps = Pick<OperationsDeps, 'store' | 'storage' | 'bucketTrouble' | 'goneRetention'>;

export function assetOperations(deps: Deps) {
  const { store } = deps;
  return {
    /** The database's data about an asset, and whether its objects are in the bucket now. */
    asset: (id: string) => describe(deps, id),

    /** Makes it due now, and counts its attempts from 0 again. A complete or leased asset stays as it is. */
    async retry(id: string) {
      checkRetry(await existingAsset(store, id));
      await store.assets.retry(id);
      return factsOf(await existingAsset(store, id));
    },
  };
}

/** The listings so far, for a search for a missing asset. */
async function whatWasListed(store: Store): Promise<string> {
  const connections = await store.connections.list();
  const active = connections.filter(({ status }) => status === 'active');
  if (active.length === 0)
    return 'No connection is active, so nothing is listed. Create a link for a user with `asset-mirror connect-link`.';
  const companies = new Set((await store.connections.companies(active.map(({ id }) => id))).map(({ id }) => id));
  const last = active.map(({ lastSyncAt }) => lastSyncAt).sort((a, b) => Number(a) - Number(b))[0];
  const others = connections.length - active.length;
  const rest = others > 0 ? `; ${numberOf(others, 'other connection')} paused or disconnected` : '';
  return (
    `Searched: ${numberOf(companies.size, 'company', 'companies')} of ${numberOf(active.length, 'active connection')}, ` +
    `${last ? `each synced at ${last.toISOString()} or later` : 'not all synced yet'}${rest}. ` +
    'Companies skipped by filters are not listed. List everything again with `asset-mirror resync CONNECTION --full`.'
  );
}

type ExistingAsset = Awaited<ReturnType<typeof existingAsset>>;

/** @throws Refused 404 */
export async function existingAsset(store: Store, id: string) {
  const [asset] = await store.assets.search({ ids: [id], limit: 1 });
  if (!asset) {
    await requireNotErased(store, id);
    throw new Refused(
      404,
      'asset_not_found',
      `There is no asset ${id} in the database. ${await whatWasListed(store)} Search by name with \`asset-mirror assets --search …\`.`,
    );
  }
  return asset;
}

async function describe(deps: Deps, id: string) {
  const { store } = deps;
  const found = await existingAsset(store, id);
  const [now, parts, { rows: history }, events, circumstances] = await Promise.all([
    store.now(),
    found.upload ? store.assets.parts(id) : [],
    store.history.ofAsset(id),
    store.events.search({ assetId: id, limit: 100 }),
    circumstancesOf(deps, found),
  ]);
  const details = detailsOf(found, parts, now);
  const stored = details.upload?.stored ?? { parts: 0, bytes: 0 };
  return {
    ...details,
    held: circumstances.isProtected,
    explanation: explanationOf(found, { ...circumstances, now: new Date(now), stored }),
    timeline: timelineOf(found, history, events),
  };
}

/** What the explanation of an asset depends on, beside the asset. */
async function circumstancesOf({ store, storage, bucketTrouble, goneRetention }: Deps, found: ExistingAsset) {
  const { id, connectionId } = found;
  const [connection, trouble, objects, findings, isProtected, setAsideSince] = await Promise.all([
    connectionId === null ? undefined : store.connections.get(connectionId),
    found.nextAt === null ? null : within(patienceMs, bucketTrouble()),
    answerWithin(checkMs, (late) => checkAsset({ store, storage }, id, late)).catch(reasonOf),
    store.assurance.findingsOfAsset(id),
    store.removals.isProtected(id),
    store.replacements.since(id),
  ]);
  return {
    connection,
    readable: found.readable,
    bucketTrouble: trouble ?? null,
    objects,
    findings,
    isProtected,
    removedAt: removalOf(found, goneRetention),
    setAsideSince,
  };
}

/** @throws Refused 409 if a retry cannot help */
function checkRetry(found: Asset & { readable: boolean }): void {
  if (found.state === 'gone') {
    throw new Refused(
      409,
      'asset_gone',
      'The asset is no longer in the library, so there is nothing to fetch. If it is added again, a full resync finds it.',
    );
  }
  if (found.skipped) {
    throw new Refused(
      409,
      'asset_skipped',
      `${renderReason(found.reason!)}. Change the filters of its connection to mirror it.`,
    );
  }
  if (Object.keys(found.listed).length === 0) {
    const why = found.reason ? renderReason(found.reason) : 'its listing breaks the API schema';
    throw new Refused(409, 'asset_unreadable', `${why}. A resync reads the listing again.`);
  }
  if (!found.readable)
    throw new Refused(
      409,
      'asset_not_readable',
      `${renderReason(noReader)}. Reconnect one with \`asset-mirror connect-link\`. If the asset has moved to another company, a full resync finds it there.`,
    );
}

const noReader: Reason = { code: 'no_reader' };

export function factsOf(asset: Asset & { readable: boolean }) {
  return {
    id: asset.id,
    name: asset.name,
    connectionId: asset.connectionId,
    companyId: asset.companyId,
    projectId: asset.projectId,
    projectName: typeof asset.listed.projectName === 'string' ? asset.listed.projectName : null,
    type: asset.assetType,
    size: asset.size,
    uploadDate: isoOf(asset.uploadDate),
    state: asset.state,
    reason: shownReason(asset.nextAt !== null && !asset.readable ? noReader : asset.reason),
    skipped: asset.skipped,
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

function detailsOf(asset: Asset & { readable: boolean }, parts: UploadPart[], now: number) {
  const { mimeType } = asset.detail ?? asset.listed;
  const { upload } = asset;
  return {
    ...factsOf(asset),
    mimeType: typeof mimeType === 'string' ? mimeType : null,
    firstSeenAt: asset.firstSeenAt.toISOString(),
    working: asset.leaseUntil !== null && asset.leaseUntil.getTime() > now,
    verifiedAt: asset.verifiedAt?.toISOString() ?? null,
    etag: asset.media?.etag ?? null,
    recordKey: asset.recordKey,
    sidecarFiles: Object.entries(asset.sidecarFiles).map(([key, { bytes, crc32, sha256 = null, etag }]) => ({
      key,
      bytes,
      crc32,
      sha256,
      etag,
    })),
    upload: upload && {
      key: upload.key,
      variant: upload.variant,
      bytes: upload.bytes,
      partBytes: upload.partBytes,
      stored: { parts: parts.length, bytes: parts.reduce((sum, part) => sum + part.bytes, 0) },
    },
  };
}
