import { concurrently } from '../../floor/concurrently.ts';
import type { Log } from '../../floor/log.ts';
import { type ChoreDeps, startChore } from '../../queue/chore.ts';
import { versionKeys } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import { throwIfUnavailable } from '../../storage/throw-if-unavailable.ts';
import type { AssetVersion, VersionFile } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import { removeBegun } from '../keep-version.ts';

const everyMs = 3_600_000;
/** How often to check whether it is due. */
const checkMs = 10 * 60_000;
/** When a version that could not be removed, such as a locked one, is tried again. */
const retryMs = 24 * 3_600_000;
/** After a downtime or a jump of the clock, nothing expires for this long. */
const graceMs = 24 * 3_600_000;
const abandonedMs = 2 * retryMs;
/** Versions per page, and how many are removed at once. */
const pageSize = 100;
const atOnce = 4;

interface ExpireDeps {
  store: Pick<Store, 'versions'>;
  storage: Storage;
  log: Log;
}

/** Every hour, one process removes versions that have been kept long enough, and those that were only begun. */
export function startExpiring(deps: ExpireDeps & ChoreDeps & { config: { keepVersions: number } }) {
  const { keepVersions: keepMs } = deps.config;
  const failed = (err: unknown) =>
    deps.log.warn({ event: 'version.expiry_failed', err }, 'expired versions not removed, will retry');
  // With a short KEEP_VERSIONS, the time between two checks must not look like a time in which nothing ran.
  const grace = Math.max(2 * checkMs, Math.min(graceMs, keepMs));
  return startChore(deps, { name: 'versions', checkMs, everyMs, graceMs: grace, failed }, async (signal) => {
    await removeAbandoned(deps, { olderThanMs: abandonedMs, signal });
    await expireVersions(deps, { keepMs, signal });
  });
}

/**
 * Removes objects of versions that a worker began to keep `olderThanMs` ago and never finished, for instance because the asset is
 * gone. No worker continues one that is older than a day.
 */
export async function removeAbandoned(
  { store, storage, log }: ExpireDeps,
  { olderThanMs, signal }: { olderThanMs: number; signal: AbortSignal },
): Promise<void> {
  for (let after = ''; ; ) {
    const page = await store.versions.abandoned({ ms: olderThanMs, after, limit: pageSize });
    await concurrently(page, atOnce, async ({ id, keepingAt }) => {
      signal.throwIfAborted();
      try {
        await removeBegun(storage, id, keepingAt, signal);
        await store.versions.forgetAbandoned({ id, keepingAt });
      } catch (err) {
        if (signal.aborted) throw err;
        await throwIfUnavailable(storage, err);
        log.warn({ event: 'version.expiry_failed', assetId: id, err }, 'expired versions not removed, will retry');
      }
    });
    if (page.length < pageSize) return;
    after = page.at(-1)!.id;
  }
}

/**
 * Removes the versions that were superseded more than `keepMs` ago. One that cannot be removed is tried again a day later, and
 * delays no other. Returns how many were removed. @throws if the whole bucket cannot be used
 */
export async function expireVersions(
  deps: ExpireDeps,
  { keepMs, signal }: { keepMs: number; signal: AbortSignal },
): Promise<number> {
  if (keepMs === Number.POSITIVE_INFINITY) return 0;
  const { store, log } = deps;
  let versions = 0;
  let bytes = 0;
  for (let left = pageSize; left === pageSize; ) {
    signal.throwIfAborted();
    const page = await store.versions.expired({ keepMs, limit: pageSize });
    left = page.length;
    // The versions of one asset are removed one after the other: they may share an object, which the last one removes.
    const byAsset = Map.groupBy(page, ({ assetId }) => assetId);
    await concurrently([...byAsset.values()], atOnce, async (ofAsset) => {
      for (const version of ofAsset) {
        signal.throwIfAborted();
        try {
          // From now on, a missing object of this version is no difference.
          await store.versions.beginRemoval(version);
          await remove(deps, version);
          versions++;
          bytes += version.bytes;
        } catch (err) {
          if (signal.aborted) throw err;
          await throwIfUnavailable(deps.storage, err);
          await store.versions.retryLater(version, retryMs);
          const { assetId, retryAt } = version;
          if (retryAt === null)
            log.warn({ event: 'version.expiry_failed', assetId, err }, 'expired versions not removed, will retry');
        }
      }
    });
  }
  if (versions > 0) log.info({ event: 'version.expired', versions, bytes }, 'expired versions removed');
  return versions;
}

/** Removes the record after the other objects, and the row last, so that nothing is forgotten after a crash. */
async function remove({ store, storage }: ExpireDeps, version: AssetVersion): Promise<void> {
  const { assetId, replacedAt, files } = version;
  const all = await store.versions.ofAsset(assetId);
  const others = all.filter((other) => other.replacedAt.getTime() !== replacedAt.getTime());
  for (const file of files) {
    if (!(await isInUse(storage, file, others))) await storage.remove(file.at, { versionId: file.versionId });
  }
  await storage.remove(versionKeys.record(assetId, replacedAt));
  await store.versions.remove(version);
}

/**
 * Whether an object of a version is also the current file, or belongs to another version. This happens in a bucket with versions if
 * a process dies after it has kept a file and before it replaces it: a rebuild then finds both.
 */
async function isInUse(storage: Storage, { at, versionId }: VersionFile, others: AssetVersion[]): Promise<boolean> {
  if (versionId === undefined) return false;
  const isSame = (file: VersionFile) => file.at === at && file.versionId === versionId;
  return others.some(({ files }) => files.some(isSame)) || (await storage.head(at))?.versionId === versionId;
}
