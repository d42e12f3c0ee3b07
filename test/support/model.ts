import { HttpError } from '../../src/source/http.ts';
import type { SyncDeps } from '../../src/sync/deps.ts';

type Client = SyncDeps['client'];

interface ModelAsset {
  id: string;
  uploadDate: number;
  /** When listings have it: later than the upload if the library is slow. */
  visibleAt: number;
  removed: boolean;
}

/** `keyset`: a cursor is a position in the order. `offset`: a number of items, which shift when others arrive. */
export type Paging = 'keyset' | 'offset';

/** A possible listing of a company, with its own clock. The test decides what happens between two pages. */
export function createModel(options: { companyId: string; paging: Paging; pageSize: number; start: number }) {
  const assets: ModelAsset[] = [];
  let now = options.start;
  /** Cursors are valid for one generation. */
  let generation = 0;

  const listed = () =>
    assets
      .filter((asset) => !asset.removed && asset.visibleAt <= now)
      .sort((a, b) => b.uploadDate - a.uploadDate || (a.id < b.id ? 1 : -1));

  return {
    assets,
    get now() {
      return now;
    },
    passes(ms: number) {
      now += ms;
    },
    upload(asset: { back: number; delay: number }) {
      const id = `${options.companyId} ${String(assets.length).padStart(3, '0')}`;
      assets.push({ id, uploadDate: now - asset.back, visibleAt: now + asset.delay, removed: false });
    },
    remove(index: number) {
      const asset = assets[index % Math.max(assets.length, 1)];
      if (asset) asset.removed = true;
    },
    forgetCursors() {
      generation++;
    },

    /** The listing of one page. @throws HttpError */
    page({ cursor, since }: { cursor?: string | undefined; since?: number | undefined }) {
      let items = listed().filter((asset) => since === undefined || asset.uploadDate > since);
      if (cursor !== undefined) {
        const [of, ...place] = JSON.parse(cursor);
        if (of !== generation) throw new HttpError('list the assets', 400);
        if (options.paging === 'offset') items = items.slice(place[0]);
        else {
          const [date, id] = place;
          items = items.filter((asset) => asset.uploadDate < date || (asset.uploadDate === date && asset.id < id));
        }
      }
      const page = items.slice(0, options.pageSize);
      const last = page.at(-1);
      const place =
        options.paging === 'offset'
          ? [(cursor === undefined ? 0 : JSON.parse(cursor)[1]) + page.length]
          : [last?.uploadDate, last?.id];
      const nextCursor = items.length > page.length ? JSON.stringify([generation, ...place]) : undefined;
      return {
        assets: page.map(({ id, uploadDate }) => ({ id, uploadDate, status: 'ready' })),
        broken: [],
        nextCursor,
        date: now,
      } satisfies Awaited<ReturnType<Client['listAssets']>>;
    },

    /** @throws HttpError */
    detail(id: string) {
      const asset = assets.find((it) => it.id === id);
      if (!asset || asset.removed) throw new HttpError(`read asset ${id}`, 404);
      return { id, uploadDate: asset.uploadDate, status: 'ready' };
    },
  };
}
export type Model = ReturnType<typeof createModel>;
