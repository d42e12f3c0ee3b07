import { concurrently } from '../../floor/concurrently.ts';
import { versionKeys } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import type { AssetVersion } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import { differencesAmong } from '../finding.ts';
import { type RebuildDeps, rebuildKeys } from '../rebuild/rebuild.ts';
import { checkVersion } from './check-version.ts';
import type { Findings } from './findings.ts';
import type { Reservoir } from './reservoir.ts';

const pageSize = 2000;
const versionsPerPage = 100;
const versionsAtOnce = 4;
/** Assets that are compared again: per batch, and at most in total. */
const againPerPage = 200;
const mostAgain = 10_000;
const mostExtra = 50;

export interface Context {
  store: Store;
  storage: Storage;
  /** What the rebuild has restored. */
  scratch: { schema: string; store: RebuildDeps['store'] & { drills: Pick<Store['drills'], 'forget'> } };
  thumbnails: RebuildDeps['thumbnails'];
  /** When the drill began. */
  startedAt: Date;
  findings: Findings;
  pause: () => Promise<void>;
  signal: AbortSignal;
}

/**
 * Compares the assets of the database with the restored ones. Returns how many, and the ids of those to be compared again at the
 * end of the drill: a worker may have changed them.
 */
export async function compareAssets(
  { store, scratch: { schema }, startedAt, findings, signal }: Context,
  sample: Reservoir<string>,
): Promise<{ compared: number; differing: string[] }> {
  const differing: string[] = [];
  let compared = 0;
  let after = '';
  for (;;) {
    signal.throwIfAborted();
    const page = await store.drills.compare({ schema, startedAt, after, limit: pageSize });
    for (const asset of page) {
      sample.add(asset.id);
      if (asset.code !== null && differing.length < mostAgain) differing.push(asset.id);
      else findings.addAsset(asset);
    }
    compared += page.length;
    if (page.length < pageSize) return { compared, differing };
    after = page.at(-1)!.id;
  }
}

/** Reads the records of these assets again, and compares them again. */
export async function compareAgain(
  { store, storage, scratch, thumbnails, startedAt, findings, pause, signal }: Context,
  ids: string[],
): Promise<void> {
  const { schema } = scratch;
  const deps = { store: scratch.store, storage, thumbnails };
  for (let from = 0; from < ids.length; from += againPerPage) {
    const some = ids.slice(from, from + againPerPage);
    const keys = (await store.contents.withIds(some)).flatMap(({ id, media }) =>
      media ? [{ id, key: media.key }] : [],
    );
    await scratch.store.drills.forget(keys);
    const media = keys.map(({ key }) => key);
    await rebuildKeys(deps, media, { onProblem: () => {}, pause, signal });
    const page = await store.drills.compare({ schema, startedAt, ids: some, after: '', limit: some.length });
    for (const asset of page) findings.addAsset(asset);
  }
}

/** Compares the kept versions of the database with the restored ones, and requests each of their objects from the bucket. */
export async function compareKeptVersions(
  { store, storage, scratch: { schema }, startedAt, findings, pause, signal }: Context,
  sample: Reservoir<AssetVersion>,
): Promise<void> {
  let after: AssetVersion | undefined;
  for (;;) {
    const page = await store.drills.versions({ schema, startedAt, after, limit: versionsPerPage });
    await concurrently(page, versionsAtOnce, async (version) => {
      sample.add(version);
      const found = await checkVersion({ store, storage }, version, { signal });
      const [damaged] = differencesAmong(found);
      if (!damaged && (version.isRestored || found.includes('moving'))) return;
      const { assetId: id, replacedAt: since } = version;
      findings.add('version_missing', { since });
      findings.addExample('version_missing', { id, key: damaged?.key ?? versionKeys.record(id, since), since });
    });
    await pause();
    if (page.length < versionsPerPage) return;
    after = page.at(-1);
  }
}

/** Reports erased assets without a tombstone, and assets that only the bucket has. */
export async function compareOthers({ store, scratch, startedAt, findings }: Context): Promise<void> {
  const { schema } = scratch;
  const { count, oldest } = await store.drills.missingTombstones({ schema, startedAt });
  if (count > 0) findings.add('tombstone_missing', { count, since: oldest });
  const extra = await store.drills.extra({ schema, startedAt, limit: mostExtra });
  if (extra.length > 0) findings.add('record_extra', { count: extra[0]!.total });
  for (const asset of extra) findings.addExample('record_extra', asset);
}
