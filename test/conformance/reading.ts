import type { z } from 'zod';
import type { NewAsset } from './admin.ts';
import { Failure, NotTried, shaped } from './check.ts';
import { type Answer, describeAnswer } from './http.ts';
import type { OAuth } from './oauth.ts';
import type { Service } from './service.ts';
import { type Asset, type Company, Detail, type DetailedAsset, Me, Page } from './shapes.ts';

const CANDIDATES = 60;

/** The library as the user of the shared connection reads it. */
export function openReading(service: Service, oauth: OAuth) {
  const requests = openRequests(service, oauth);
  return { ...requests, ...openAssets(service, requests) };
}

/** The requests of an app: to the API and to signed links. */
function openRequests({ options, send }: Service, oauth: OAuth) {
  const { api, app } = options;

  const requests = {
    /** GET of the API, by default with the shared connection. */
    async get(path: string, token?: string): Promise<Answer> {
      const bearer = token ?? (await oauth.session()).access_token;
      return send(`${api}/api/v1${path}`, { headers: { authorization: `Bearer ${bearer}` } });
    },

    async read<T extends z.ZodType>(path: string, shape: T): Promise<z.output<T>> {
      const answer = await requests.get(path);
      if (answer.status !== 200)
        throw new Failure(`GET /api/v1${path.split('?')[0]} with status 200`, describeAnswer(answer));
      return shaped(answer.request, shape, answer.json);
    },

    async companies(): Promise<Company[]> {
      const { companies } = await requests.read('/me', Me);
      if (companies.length === 0) throw new NotTried('this user can read no company');
      return companies;
    },

    page: (companyId: string, query: Record<string, string | number> = {}): Promise<Page> =>
      requests.read(`/companies/${segment(companyId)}/assets?${queryOf(query)}`, Page),

    /** A list, page by page, up to `most` assets. */
    async list(companyId: string, query: Record<string, string | number> = {}, most = options.scan): Promise<Asset[]> {
      const assets: Asset[] = [];
      const cursors = new Set<string>();
      let cursor: string | null | undefined;
      do {
        const page = await requests.page(companyId, { limit: 100, ...query, ...(cursor && { cursor }) });
        assets.push(...page.assets);
        cursor = page.nextCursor;
        if (cursor && cursors.has(cursor)) throw new Failure('a list that ends', `cursor ${cursor} a second time`);
        if (cursor) cursors.add(cursor);
      } while (cursor && assets.length < most);
      return assets;
    },

    detail: async (id: string): Promise<DetailedAsset> => (await requests.read(`/assets/${segment(id)}`, Detail)).asset,

    /** A request to a signed link, as an app sends it: with Referer, without token. */
    download(
      url: string,
      { headers = {}, method, limit = 1024 * 1024, referer = app }: Downloading = {},
    ): Promise<Answer> {
      return send(url, {
        ...(method && { method }),
        limit,
        headers: { 'accept-encoding': 'identity', ...(referer !== null && { referer }), ...headers },
      });
    },
  };
  return requests;
}

/** The assets for checks: made by the admin API, or found in the library. */
function openAssets(service: Service, requests: ReturnType<typeof openRequests>) {
  const { own, made } = service;
  let listing: Promise<Asset[]> | undefined;

  async function newest(): Promise<Asset[]> {
    const found: Asset[] = [];
    for (const { id } of (await requests.companies()).slice(0, 10)) found.push(...(await requests.list(id)));
    return found;
  }

  const assets = {
    /** The company whose list is read. It has more than a hundred assets, if there is one. */
    async listed(): Promise<Company> {
      if (own) {
        await service.needOwn().fill(made);
        return { id: own.companyId, name: own.companyName };
      }
      const companies = await requests.companies();
      let largest = { company: companies[0]!, count: -1 };
      for (const company of companies.slice(0, 10)) {
        const { length } = await requests.list(company.id, {}, 101);
        if (length > largest.count) largest = { company, count: length };
        if (length > 100) break;
      }
      if (largest.count < 1) throw new NotTried('no company of this user has assets');
      return largest.company;
    },

    /** An asset with certain properties: made by the admin API, or found among the newest. `proves` tests a candidate. */
    async asset(
      what: string,
      make: NewAsset,
      fits: (asset: Asset) => boolean,
      proves: (asset: Asset) => Promise<boolean> = async () => true,
    ): Promise<Asset> {
      if (own) return requests.detail(await assets.upload(make));
      listing ??= newest();
      for (const asset of (await listing).filter(fits).slice(0, CANDIDATES)) {
        if (await proves(asset)) return asset;
      }
      throw new NotTried(`this library shows no ${what} among its newest assets; --admin makes one`);
    },

    async upload(asset: NewAsset, companyId = service.needOwn().companyId): Promise<string> {
      const { transcript, ...rest } = asset;
      const { id } = await service.needAdmin().addAsset(companyId, rest);
      made.push(id);
      // Not with the upload: then the transcript would exist some minutes later.
      if (transcript !== undefined) await service.needAdmin().changeAsset(id, { transcript });
      return id;
    },

    /** The assets are listed again for the next check. */
    forget(): void {
      listing = undefined;
    },
  };
  return assets;
}

type Downloading = {
  headers?: Record<string, string>;
  method?: 'GET' | 'HEAD';
  limit?: number;
  /** Null: without it. */
  referer?: string | null;
};

export function segment(id: string): string {
  return encodeURIComponent(id);
}

function queryOf(query: Record<string, string | number>): URLSearchParams {
  return new URLSearchParams(Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]));
}
