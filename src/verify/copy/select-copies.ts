import { NamedError } from '../../floor/errors.ts';
import { because } from '../../floor/reasons.ts';
import { storedFiles } from '../../mirror/stored-files.ts';
import { type ApiAsset, versionOf } from '../../source/schemas.ts';
import { versionName } from '../../storage/keys.ts';
import type { Asset, AssetVersion, Media, VersionFile } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import type { NotCopied } from './copy-each.ts';

/** Which assets to restore, and which copy of each. All conditions must match. */
export interface Selection {
  assetIds?: string[] | undefined;
  companyId?: string | undefined;
  projectId?: string | undefined;
  /** The id of a connection, the beginning of one, or the e-mail or name of its user. */
  connection?: string | undefined;
  /** The name of a version of the one asset. */
  version?: string | undefined;
  /** Selects the newest copy that was mirrored by this time. Assets that were deleted by then are omitted. */
  asOf?: Date | undefined;
}

/** A complete copy of an asset, current or superseded: the media first, then the sidecars, the record last. */
export interface Copy {
  assetId: string;
  files: (Omit<VersionFile, 'bytes'> & { bytes: number | undefined })[];
  bytes: number;
  contentType: string | undefined;
  /** Why this is not the copy that was asked for: a sentence, as of a problem. */
  flaw?: string;
}

/** The selection is wrong, or matches nothing. */
export class WrongSelection extends NamedError {}

const pageSize = 200;

/** The selected copies; for an asset without a copy, a sentence that says why. @throws WrongSelection */
export async function* selectCopies(
  store: Pick<Store, 'assets' | 'versions' | 'connections'>,
  { connection, ...selection }: Selection,
): AsyncGenerator<Copy | NotCopied> {
  const connectionId = connection === undefined ? undefined : await idOfConnection(store, connection);
  const { assetIds, companyId, projectId } = selection;
  const filter = { ids: assetIds, companyId, projectId, connectionId };
  const unknown = new Set(assetIds);
  let isAny = false;
  for await (const ids of pagesOf(store, filter)) {
    isAny = true;
    const [assets, versions] = await Promise.all([store.assets.withIds(ids), store.versions.ofAssets(ids)]);
    for (const assetId of ids) {
      unknown.delete(assetId);
      const asset = assets.find(({ id }) => id === assetId);
      const own = versions.filter((version) => version.assetId === assetId);
      const chosen = choose(asset, own, selection);
      if (chosen && (projectId === undefined || chosen.projectId === projectId))
        yield {
          ...chosen,
          ...(isOlder(asset, selection) && {
            flaw: 'its current file is not complete in the bucket; an earlier version was copied',
          }),
        };
      else {
        const problem = whyNotChosen(asset, chosen, selection);
        if (problem !== undefined) yield { assetId, problem };
      }
    }
  }
  if (unknown.size > 0) {
    const other = (connectionId ?? companyId ?? projectId) ? ' that matches the other options' : '';
    throw new WrongSelection(`There is no asset ${[...unknown].join(', ')}${other}.`);
  }
  if (!isAny) throw new WrongSelection('No asset in the bucket matches these options.');
}

async function* pagesOf(
  { versions }: Pick<Store, 'versions'>,
  filter: Omit<Parameters<Store['versions']['restorable']>[0], 'orphans' | 'after' | 'limit'>,
): AsyncGenerator<string[]> {
  for (const orphans of [false, true]) {
    for (let after: string | undefined = ''; after !== undefined; ) {
      const ids: string[] = await versions.restorable({ ...filter, orphans, after, limit: pageSize });
      if (ids.length > 0) yield ids;
      after = ids.length < pageSize ? undefined : ids.at(-1)!;
    }
  }
}

type Candidate = Copy & { projectId: string | null; mirroredAt: Date };

function choose(
  asset: Asset | undefined,
  versions: AssetVersion[],
  { version, asOf }: Selection,
): Candidate | undefined {
  if (version !== undefined) {
    const found = versions.find(({ replacedAt }) => versionName(replacedAt) === version);
    if (found) return copyOf(found, asset);
    const names = versions.map(({ replacedAt }) => versionName(replacedAt));
    throw new WrongSelection(
      `There is no version ${version}. ${names.length > 0 ? `Kept: ${names.join(', ')}.` : 'None is kept.'}`,
    );
  }
  if (asOf && isGone(asset, asOf)) return undefined;
  const current = asset && currentCopy(asset);
  return [...(current ? [current] : []), ...versions.map((each) => copyOf(each, asset))]
    .filter(({ mirroredAt }) => !asOf || mirroredAt <= asOf)
    .sort((a, b) => b.mirroredAt.getTime() - a.mirroredAt.getTime())[0];
}

/** Whether an earlier version is chosen in place of a current file that is damaged, or is being replaced. */
function isOlder(asset: Asset | undefined, { version, asOf }: Selection): boolean {
  if (version !== undefined || !asset?.media || currentCopy(asset)) return false;
  return asOf === undefined || hadCopy(asset, asOf);
}

/** Why an asset is not copied; undefined if the selection does not cover it. */
function whyNotChosen(
  asset: Asset | undefined,
  other: Candidate | undefined,
  { assetIds, asOf }: Selection,
): string | undefined {
  if (!other && (asOf === undefined || hadCopy(asset, asOf))) return whyNone(asset);
  if (assetIds === undefined) return undefined;
  return other
    ? 'its copy belongs to another project'
    : 'it had no copy in the bucket at that time, or was deleted in the library';
}

const isGone = (asset: Asset | undefined, asOf: Date) => Boolean(asset?.goneAt && asset.goneAt <= asOf);

/** Whether its file was in the bucket at that time. It may be damaged now. */
const hadCopy = (asset: Asset | undefined, asOf: Date) =>
  Boolean(asset?.mirroredAt && asset.mirroredAt <= asOf && !isGone(asset, asOf));

function copyOf({ media, ...version }: AssetVersion, asset: Asset | undefined): Candidate {
  const { assetId, projectId, mirroredAt, files, bytes } = version;
  return { assetId, projectId, mirroredAt, files, bytes, contentType: typeOf(media, asset) };
}

/** Undefined: the asset has no complete copy at present. */
export function currentCopy(asset: Asset): Candidate | undefined {
  const { id, projectId, media, detail, mirroredAt } = asset;
  if (!media || !detail || !mirroredAt || media.version !== versionOf(detail as ApiAsset)) return undefined;
  const files = storedFiles(asset, media).map((file) => ({ ...file, at: file.key }));
  const bytes = files.reduce((sum, file) => sum + (file.bytes ?? 0), 0);
  return { assetId: id, projectId, mirroredAt, files, bytes, contentType: typeOf(media, asset) };
}

/** `mimeType` is that of the original. */
const typeOf = ({ variant }: Media, asset: Asset | undefined) =>
  variant === 'mp4' ? 'video/mp4' : ((asset?.detail as ApiAsset | undefined)?.mimeType ?? undefined);

export const whyNone = (asset: Asset | undefined) =>
  asset
    ? `it has no complete copy in the bucket${because(asset.reason) || `: ${asset.state}`}`
    : 'it is not in the bucket';

export async function idOfConnection({ connections }: Pick<Store, 'connections'>, given: string): Promise<string> {
  const all = await connections.list();
  if (all.some(({ id }) => id === given)) return given;
  const same = (text: string) => text.toLowerCase() === given.toLowerCase();
  const found = all.filter(({ id, userEmail, userName }) => id.startsWith(given) || same(userEmail) || same(userName));
  if (found.length === 1) return found[0]!.id;
  throw new WrongSelection(
    found.length === 0 ? `No connection has the id, e-mail or name ${given}.` : `${given} means several connections.`,
  );
}
