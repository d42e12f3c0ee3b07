import type { Asset, Project } from './model.ts';

/** A position in a listing, which is in the order of `newestFirst`. */
export type Position = { uploadDate: number; id: string };

export type Query = {
  companyId: string;
  limit: number;
  after: Position | null;
  since: number | null;
  assetType: string | null;
  projectId: string | null;
};

/** Holds assets: memory, a folder, or generated assets. */
export type Source = {
  projects(companyId: string): Project[];
  find(id: string): Asset | undefined;
  /** Lists at most `limit` assets, without hidden ones. */
  list(query: Query, isHidden: (id: string) => boolean): Asset[];
};

/** All projects and assets: those of the content, and above them those of the admin API. */
export class Catalogue {
  readonly #sources: Source[];
  readonly #memory = new Memory();
  readonly #removed = new Set<string>();

  constructor(sources: Source[] = []) {
    this.#sources = sources;
  }

  projects(companyId: string): Project[] {
    return [...this.#sources, this.#memory].flatMap((source) => source.projects(companyId));
  }

  find(id: string): Asset | undefined {
    if (this.#removed.has(id)) return undefined;
    for (const source of [this.#memory, ...this.#sources]) {
      const asset = source.find(id);
      if (asset) return asset;
    }
    return undefined;
  }

  /** At most `limit` assets after a position, and whether there are more. */
  page(query: Query): { assets: Asset[]; more: boolean } {
    const oneMore = { ...query, limit: query.limit + 1 };
    const isHidden = (id: string) => this.#removed.has(id) || this.#memory.find(id) !== undefined;
    const assets = [
      ...this.#memory.list(oneMore),
      ...this.#sources.flatMap((source) => source.list(oneMore, isHidden)),
    ].sort(newestFirst);
    return { assets: assets.slice(0, query.limit), more: assets.length > query.limit };
  }

  addProject(project: Project): void {
    this.#memory.addProject(project);
  }

  /** Adds an asset, or replaces the one with the same id, also one of the content. */
  put(asset: Asset): void {
    this.#removed.delete(asset.id);
    this.#memory.put(asset);
  }

  remove(id: string): void {
    this.#memory.remove(id);
    this.#removed.add(id);
  }
}

/** Assets of the same millisecond are in the order of their ids, descending. */
export function newestFirst(a: Position, b: Position): number {
  return b.uploadDate - a.uploadDate || (a.id < b.id ? 1 : a.id > b.id ? -1 : 0);
}

/** Assets in memory, sorted per company. */
export class Memory implements Source {
  readonly #byId = new Map<string, Asset>();
  readonly #byCompany = new Map<string, Asset[]>();
  readonly #projects: Project[] = [];

  projects(companyId: string): Project[] {
    return this.#projects.filter((project) => project.companyId === companyId);
  }

  find(id: string): Asset | undefined {
    return this.#byId.get(id);
  }

  list(
    { companyId, limit, after, since, assetType, projectId }: Query,
    isHidden: (id: string) => boolean = () => false,
  ): Asset[] {
    const listed = this.#byCompany.get(companyId) ?? [];
    const found: Asset[] = [];
    for (let i = after ? firstAfter(listed, after) : 0; i < listed.length && found.length < limit; i++) {
      const asset = listed[i]!;
      if (since !== null && asset.uploadDate <= since) break;
      if (assetType !== null && asset.assetType !== assetType) continue;
      if (projectId !== null && asset.project?.id !== projectId) continue;
      if (!isHidden(asset.id)) found.push(asset);
    }
    return found;
  }

  addProject(project: Project): void {
    this.#projects.push(project);
  }

  put(asset: Asset): void {
    this.remove(asset.id);
    this.#byId.set(asset.id, asset);
    const listed = this.#byCompany.get(asset.companyId) ?? [];
    this.#byCompany.set(asset.companyId, listed);
    listed.splice(firstAfter(listed, asset), 0, asset);
  }

  remove(id: string): void {
    const asset = this.#byId.get(id);
    if (!asset) return;
    this.#byId.delete(id);
    const listed = this.#byCompany.get(asset.companyId)!;
    listed.splice(firstAfter(listed, asset) - 1, 1);
  }
}

/** The index of the first asset after a position, by binary search. */
function firstAfter(listed: Asset[], position: Position): number {
  let low = 0;
  let high = listed.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (newestFirst(listed[middle]!, position) <= 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
