import type { Asset, Project } from './model.ts';

/** Where a page of the listing ended. Newest first; assets of the same millisecond are ordered by id. */
export type Position = { uploadDate: number; id: string };

export type Query = {
  companyId: string;
  limit: number;
  after: Position | null;
  since: number | null;
  assetType: string | null;
  projectId: string | null;
};

/** Something that holds assets: the memory, a folder, a formula. `list` leaves out what `isHidden`. */
export type Source = {
  projects(companyId: string): Project[];
  find(id: string): Asset | undefined;
  list(query: Query, isHidden: (id: string) => boolean): Asset[];
};

export type Catalogue = {
  projects(companyId: string): Promise<Project[]>;
  find(id: string): Promise<Asset | undefined>;
  /** At most `limit` assets after a position, and whether there are more. */
  page(query: Query): Promise<{ assets: Asset[]; more: boolean }>;
  addProject(project: Project): Promise<void>;
  /** Adds an asset, or puts it in the place of the one with its id, wherever that came from. */
  put(asset: Asset): Promise<void>;
  remove(id: string): Promise<void>;
};

export function createCatalogue(sources: Source[] = []): Catalogue {
  const memory = createMemory();
  const removed = new Set<string>();
  const isHidden = (id: string) => removed.has(id) || memory.find(id) !== undefined;
  const visible = () => false;

  return {
    async projects(companyId) {
      return [...sources.flatMap((source) => source.projects(companyId)), ...memory.projects(companyId)];
    },

    async find(id) {
      if (removed.has(id)) return undefined;
      return memory.find(id) ?? sources.map((source) => source.find(id)).find((asset) => asset !== undefined);
    },

    async page(query) {
      const oneMore = { ...query, limit: query.limit + 1 };
      const found = [
        memory.list(oneMore, visible),
        ...sources.map((source) => source.list(oneMore, isHidden)).filter((assets) => assets.length > 0),
      ];
      const assets = found.length === 1 ? found[0]! : found.flat().sort(newestFirst);
      return { assets: assets.slice(0, query.limit), more: assets.length > query.limit };
    },

    async addProject(project) {
      memory.addProject(project);
    },

    async put(asset) {
      removed.delete(asset.id);
      memory.put(asset);
    },

    async remove(id) {
      memory.remove(id);
      removed.add(id);
    },
  };
}

export function newestFirst(a: Position, b: Position): number {
  return b.uploadDate - a.uploadDate || (a.id < b.id ? 1 : a.id > b.id ? -1 : 0);
}

export type Memory = Source & {
  addProject(project: Project): void;
  put(asset: Asset): void;
  remove(id: string): void;
};

export function createMemory(): Memory {
  const byId = new Map<string, Asset>();
  const byCompany = new Map<string, Asset[]>();
  const projects: Project[] = [];

  function remove(id: string): void {
    const asset = byId.get(id);
    if (!asset) return;
    byId.delete(id);
    const listed = byCompany.get(asset.companyId)!;
    listed.splice(firstAfter(listed, asset) - 1, 1);
  }

  return {
    projects: (companyId) => projects.filter((project) => project.companyId === companyId),
    find: (id) => byId.get(id),

    list(query) {
      const listed = byCompany.get(query.companyId) ?? [];
      const found: Asset[] = [];
      for (let i = query.after ? firstAfter(listed, query.after) : 0; i < listed.length; i++) {
        const asset = listed[i]!;
        if (found.length === query.limit || (query.since !== null && asset.uploadDate <= query.since)) break;
        if (query.assetType !== null && asset.assetType !== query.assetType) continue;
        if (query.projectId !== null && asset.project?.id !== query.projectId) continue;
        found.push(asset);
      }
      return found;
    },

    addProject: (project) => {
      projects.push(project);
    },

    put(asset) {
      remove(asset.id);
      byId.set(asset.id, asset);
      const listed = byCompany.get(asset.companyId) ?? [];
      byCompany.set(asset.companyId, listed);
      listed.splice(firstAfter(listed, asset), 0, asset);
    },

    remove,
  };
}

/** The index of the first asset that comes after a position, by bisection. */
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
