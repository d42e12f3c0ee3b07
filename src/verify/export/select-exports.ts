import type { AssetFilter } from '../../store/assets/search.ts';
import type { Asset } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import type { NotCopied } from '../copy/copy-each.ts';
import type { FileToCopy } from '../copy/copy-file.ts';
import { currentCopy, WrongSelection, whyNone } from '../copy/select-copies.ts';
import { nameOf, UniqueNames } from './export-names.ts';

export interface ExportSelection {
  filter: AssetFilter;
  /** The template of names, see export-names.ts. */
  names: string;
  /** Exports captions, transcripts and thumbnails, too. */
  sidecars: boolean;
}

/** An asset with the files to export: the media first. */
export interface ExportedAsset {
  assetId: string;
  files: FileToCopy[];
  bytes: number;
  /** When it was uploaded, or else first seen. */
  date: Date;
  /** The facts that the manifest states about the asset. */
  facts: Facts;
}

export interface Facts {
  name: string | null;
  type: string | null;
  mimeType: string | null;
  company: string;
  companyId: string;
  project: string | null;
  projectId: string | null;
  uploadDate: string | null;
}

const pageSize = 200;

/**
 * The selected assets that have a complete copy, in the order of their ids, with unique names. For others, a sentence that
 * says why; assets that have no file in the library, or that a filter skips, are omitted.
 * @throws WrongSelection if no asset matches
 */
export async function* selectExports(
  store: Pick<Store, 'assets' | 'connections'>,
  { filter, names, sidecars }: ExportSelection,
): AsyncGenerator<ExportedAsset | NotCopied> {
  const companies = await companyNames(store);
  const unique = new UniqueNames();
  for (let after: [string, string] | undefined; ; ) {
    const page = await store.assets.search({ ...filter, after, limit: pageSize });
    if (!after && page.length === 0) throw new WrongSelection('No asset in the bucket matches these options.');
    for (const asset of page) {
      const copy = currentCopy(asset);
      if (copy)
        yield exported(asset, copy, companies.get(asset.companyId) ?? asset.companyId, { names, sidecars, unique });
      else if (!asset.skipped && asset.state !== 'unavailable') yield { assetId: asset.id, problem: whyNone(asset) };
    }
    const last = page.at(-1);
    if (!last || page.length < pageSize) return;
    after = [last.id, last.id];
  }
}

function exported(
  asset: Asset,
  copy: NonNullable<ReturnType<typeof currentCopy>>,
  company: string,
  { names, sidecars, unique }: Pick<ExportSelection, 'names' | 'sidecars'> & { unique: UniqueNames },
): ExportedAsset {
  const { id, name, assetType: type, companyId, projectId, uploadDate, firstSeenAt } = asset;
  const { key } = copy.files[0]!;
  const filename = key.slice(key.lastIndexOf('/') + 1);
  const project = typeof asset.listed.projectName === 'string' ? asset.listed.projectName : null;
  // The keys of sidecars begin with that of the media.
  const suffixOf = (file: { key: string }) => file.key.slice(key.length);
  const chosen = copy.files.filter(({ role }) => role === 'media' || (sidecars && role !== 'record'));
  const parts = { id, name, filename, type, company, companyId, project, projectId, uploadDate };
  const path = unique.of(nameOf(names, parts), id, chosen.map(suffixOf));
  const { contentType } = copy;
  const files = chosen.map(({ at, versionId, bytes, crc32, role, ...file }) => ({
    ...{ at, versionId, bytes, crc32, to: path + suffixOf(file) },
    contentType: role === 'media' ? contentType : undefined,
  }));
  const date = new Date(uploadDate ?? firstSeenAt);
  return {
    ...{ assetId: id, files, date: Number.isNaN(date.getTime()) ? firstSeenAt : date },
    bytes: files.reduce((sum, file) => sum + (file.bytes ?? 0), 0),
    facts: {
      ...{ name, type, company, companyId, project, projectId },
      mimeType: contentType ?? null,
      uploadDate: uploadDate === null ? null : date.toJSON(),
    },
  };
}

async function companyNames({ connections }: Pick<Store, 'connections'>): Promise<Map<string, string>> {
  const all = await connections.list();
  const companies = await connections.companies(all.map(({ id }) => id));
  return new Map(companies.map(({ id, name }) => [id, name]));
}
