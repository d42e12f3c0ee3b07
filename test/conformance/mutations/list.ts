import { asked, body, instead, type Json, json, LIST, listed, type Mutation, status } from './faults.ts';

export const list: Mutation[] = [
  ...(
    [
      ['sizes are strings', (asset) => ({ size: String(asset.size) })],
      ['dates are in seconds', (asset) => ({ uploadDate: Math.round(asset.uploadDate / 1000) })],
      ['a type is not one of the eight', () => ({ assetType: 'video' })],
      ['a status is not one of the three', () => ({ status: 'done' })],
      ['hasTranscript is missing', () => ({ hasTranscript: undefined })],
      ['tags are one string', () => ({ tags: 'a,b' })],
      ['the MIME type is an extension', () => ({ mimeType: 'mp4' })],
      ['there is no thumbnail', () => ({ thumbnailUrl: undefined })],
    ] as [string, (asset: Json) => object][]
  ).map(([breaks, change]) => ({
    check: 'asset-fields',
    breaks,
    fault: listed(change),
  })),
  {
    check: 'project-of-asset',
    breaks: 'projectName is that of another project',
    fault: listed(({ projectName }) => (projectName ? { projectName: 'Another' } : {})),
  },
  {
    check: 'newest-first',
    breaks: 'assets are listed oldest first',
    fault: body(LIST, (page) => ({ ...page, assets: page.assets.toReversed() })),
  },
  {
    check: 'pages',
    breaks: 'a page begins one asset too late',
    fault: body(LIST, (page, { query }) => ({ ...page, assets: page.assets.slice(query.has('cursor') ? 1 : 0) })),
  },
  {
    check: 'pages',
    breaks: 'a page repeats the last asset of the one before',
    fault: () => {
      let last: Json[] = [];
      return body(LIST, (page, { query }) => {
        const assets = query.has('cursor') ? [...last, ...page.assets] : page.assets;
        last = assets.slice(-1);
        return { ...page, assets };
      })();
    },
  },
  {
    check: 'last-page',
    breaks: 'the cursor of the last page leads to the first',
    fault: () => {
      let first: string;
      return body(LIST, (page) => {
        first ??= page.nextCursor;
        return { ...page, nextCursor: page.nextCursor ?? first };
      })();
    },
  },
  {
    check: 'limit',
    breaks: 'a page has one asset less than the limit',
    fault: body(LIST, (page) => ({ ...page, assets: page.assets.slice(0, 99) })),
  },
  {
    check: 'limit-default',
    breaks: 'a page has 20 assets by default',
    fault: asked(LIST, ({ query }) => query.has('limit') || query.set('limit', '20')),
  },
  {
    check: 'limit-bounds',
    breaks: 'a limit of 1000 is accepted',
    fault: instead(LIST, ({ query }) =>
      query.get('limit') === '1000' ? json(200, { assets: Array(101) }) : undefined,
    ),
  },
  { check: 'cursor-made-up', breaks: 'a bad cursor is a server error', fault: status(LIST, 400, 500) },
  {
    check: 'uploads-arrive',
    breaks: 'a cursor is a page number',
    fault: () => ({
      ask({ path, query, headers }) {
        if (!LIST.test(path)) return;
        headers['x-from'] = query.get('cursor') ?? '0';
        query.delete('cursor');
        query.set('limit', '100');
      },
      answer(answered, { path, headers }) {
        if (!LIST.test(path) || answered.status !== 200) return;
        const { assets } = JSON.parse(answered.body.toString());
        const from = Number(headers['x-from']);
        const nextCursor = assets.length > from + 2 ? String(from + 2) : null;
        Object.assign(answered, json(200, { assets: assets.slice(from, from + 2), nextCursor }));
      },
    }),
  },
  {
    check: 'since',
    breaks: 'since includes assets of that time',
    fault: asked(LIST, ({ query }) => query.has('since') && query.set('since', String(Number(query.get('since')) - 1))),
  },
  {
    check: 'since',
    breaks: 'since is in seconds',
    fault: asked(
      LIST,
      ({ query }) => query.has('since') && query.set('since', String(Math.floor(Number(query.get('since')) / 1000))),
    ),
  },
  { check: 'asset-type', breaks: 'assetType is ignored', fault: asked(LIST, ({ query }) => query.delete('assetType')) },
  {
    check: 'asset-type',
    breaks: 'the type brand assets is refused',
    fault: instead(LIST, ({ query }) => (query.get('assetType') === 'brand assets' ? json(400, {}) : undefined)),
  },
  { check: 'project-id', breaks: 'projectId is ignored', fault: asked(LIST, ({ query }) => query.delete('projectId')) },
  {
    check: 'filters-together',
    breaks: 'since is ignored with a type',
    fault: asked(LIST, ({ query }) => query.has('assetType') && query.delete('since')),
  },
  {
    check: 'filters-together',
    breaks: 'the filter is ignored on the second page',
    fault: asked(LIST, ({ query }) => query.has('cursor') && query.delete('assetType')),
  },
  { check: 'type-or-project', breaks: 'both together are a server error', fault: status(LIST, 400, 500) },
];
