import { check, Failure, NotTried, same, that } from '../check.ts';
import { describeAnswer } from '../http.ts';
import { segment } from '../reading.ts';
import { ASSET_TYPES, type Asset, Projects } from '../shapes.ts';
import type { World } from '../world.ts';

const ids = (assets: Asset[]) => assets.map(({ id }) => id);

function isNewestFirst(assets: Asset[]): void {
  for (const [i, { uploadDate }] of assets.entries()) {
    const before = assets[i - 1];
    if (before && before.uploadDate < uploadDate) {
      throw new Failure('dates that descend', `${before.uploadDate} before ${uploadDate}, at place ${i}`);
    }
  }
}

/** The whole list in large pages, to compare other queries with. */
async function whole(world: World): Promise<{ id: string; assets: Asset[]; isComplete: boolean }> {
  const { id } = await world.listed();
  const assets = await world.list(id);
  return { id, assets, isComplete: assets.length < world.options.scan };
}

function atLeast(count: number, { assets }: { assets: Asset[] }): void {
  if (assets.length < count) throw new NotTried(`no company here has ${count} assets; --admin makes them`);
}

async function statusOf(world: World, companyId: string, query: string): Promise<{ status: number; count: number }> {
  const answer = await world.get(`/companies/${segment(companyId)}/assets?${query}`);
  if (answer.status >= 500) throw new Failure('an answer other than 5xx', describeAnswer(answer));
  return { status: answer.status, count: (answer.json as { assets?: unknown[] } | undefined)?.assets?.length ?? 0 };
}

export const list = [
  check('2.6', 'asset-fields', 'Listed assets have their fields, of the right types.', async (world) => {
    const { assets } = await whole(world);
    same('ids without their doubles', new Set(ids(assets)).size, assets.length);
    const soon = world.now() + 24 * 3600 * 1000;
    const late = assets.find(({ uploadDate }) => uploadDate > soon);
    if (late) throw new Failure('uploadDate in milliseconds, and not in the future', late.uploadDate);
  }),

  check(
    '2.6',
    'project-of-asset',
    "An asset's projectId and projectName are those of a project of its company.",
    async (world) => {
      const { id, assets } = await whole(world);
      const { projects } = await world.read(`/companies/${segment(id)}/projects`, Projects);
      const names = new Map(projects.map((project) => [project.id, project.name]));
      const inProject = assets.filter(({ projectId }) => typeof projectId === 'string');
      if (inProject.length === 0) throw new NotTried('no asset here belongs to a project');
      for (const { projectId, projectName } of inProject) {
        same(
          `the name of project ${projectId}`,
          projectName,
          names.get(projectId!) ?? 'listed by the projects endpoint',
        );
      }
    },
  ),

  check('4.6', 'newest-first', 'Assets come newest first.', async (world) => {
    const { assets } = await whole(world);
    isNewestFirst(assets);
  }),

  check(
    '4.6',
    'pages',
    'Small pages give the same assets in the same order as large ones, none twice.',
    async (world) => {
      const all = await whole(world);
      atLeast(3, all);
      for (const [limit, count] of [
        [1, 12],
        [7, 60],
      ] as const) {
        const found = await world.list(all.id, { limit }, count);
        same(`ids in pages of ${limit}`, ids(found), ids(all.assets).slice(0, found.length));
        that(
          `${Math.min(count, all.assets.length)} assets or more`,
          found.length >= Math.min(count, all.assets.length),
          found.length,
        );
      }
    },
  ),

  check('4.6', 'last-page', 'The list ends: a last page has no nextCursor to follow.', async (world) => {
    const { id, assets, isComplete } = await whole(world);
    if (!isComplete) throw new NotTried(`this company has more assets than --scan ${world.options.scan}`);
    let page = await world.page(id, { limit: 100 });
    let count = page.assets.length;
    while (page.nextCursor) {
      page = await world.page(id, { limit: 100, cursor: page.nextCursor });
      count += page.assets.length;
    }
    same('assets on all pages', count, assets.length);
    const last = 'nextCursor' in page ? JSON.stringify(page.nextCursor) : 'absent';
    world.observe(`nextCursor of the last page: ${last}`);
  }),

  check('4.6', 'limit', 'limit sets the number of assets per page, 1 to 100.', async (world) => {
    const all = await whole(world);
    atLeast(101, all);
    for (const limit of [1, 2, 99, 100]) {
      same(`assets with limit=${limit}`, (await world.page(all.id, { limit })).assets.length, limit);
    }
  }),

  check('4.6', 'limit-default', 'A page has 50 assets by default.', async (world) => {
    const all = await whole(world);
    atLeast(51, all);
    const { assets, nextCursor } = await world.page(all.id);
    same('assets without limit', assets.length, 50);
    that('a nextCursor', typeof nextCursor === 'string' && nextCursor !== '', nextCursor);
  }),

  check(
    '4.6',
    'limit-bounds',
    'No limit gives more than 100 assets, and none fails on the side of the service.',
    async (world) => {
      const all = await whole(world);
      for (const limit of ['0', '-1', '101', '1000', '1.5', 'many', '']) {
        const { status, count } = await statusOf(world, all.id, `limit=${limit}`);
        that('100 assets at most', count <= 100, `${count} assets with limit=${limit}`);
        world.observe(`limit=${limit}: status ${status}${status === 200 ? ` with ${count} assets` : ''}`);
      }
    },
  ),

  check(
    '4.6',
    'cursor-made-up',
    'A cursor that no page gave does not fail on the side of the service.',
    async (world) => {
      const { id } = await world.listed();
      const { status } = await statusOf(world, id, 'cursor=made-up');
      world.observe(`a made-up cursor: status ${status}`);
    },
  ),

  check('4.6', 'uploads-arrive', 'Paging neither skips nor repeats an asset while uploads arrive.', async (world) => {
    world.needAdmin();
    const person = await world.newPerson();
    const { companyId } = person;
    const paper = { mimeType: 'application/pdf', assetType: 'documents' };
    const date = Date.UTC(2025, 1, 1);
    const before: string[] = [];
    // Three per millisecond, so that pages end between uploads of the same millisecond.
    for (let i = 0; i < 9; i++) {
      before.push(await world.upload({ ...paper, name: `${i}.pdf`, uploadDate: date + Math.floor(i / 3) }, companyId));
    }
    const { access_token } = await world.grant({ person });
    const seen: string[] = [];
    let cursor: string | null | undefined;
    do {
      const query = new URLSearchParams({ limit: '2', ...(cursor && { cursor }) });
      const answer = await world.get(`/companies/${companyId}/assets?${query}`, access_token);
      if (answer.status !== 200) throw new Failure('status 200', describeAnswer(answer));
      const page = answer.json as { assets: Asset[]; nextCursor?: string | null };
      seen.push(...ids(page.assets));
      cursor = page.nextCursor;
      await world.upload({ ...paper, name: 'new.pdf', uploadDate: date + 1000 + seen.length }, companyId);
      if (seen.length > 50) throw new Failure('a list that ends', `${seen.length} assets of 9`);
    } while (cursor);
    same('each of the assets once', seen.toSorted(), before.toSorted());
  }),

  check('4.6', 'since', 'since lists assets that were uploaded strictly later.', async (world) => {
    const all = await whole(world);
    atLeast(3, all);
    const dates = [...new Set(all.assets.map(({ uploadDate }) => uploadDate))];
    for (const since of [dates[0]!, dates[Math.floor(Math.min(dates.length, 60) / 2)]!]) {
      const expected = all.assets.filter(({ uploadDate }) => uploadDate > since);
      const found = await world.list(all.id, { since }, expected.length + 1);
      same(`assets after ${since}`, ids(found), ids(expected));
      const justBefore = await world.page(all.id, { since: since - 1, limit: 100 });
      const atIt = justBefore.assets.some(({ uploadDate }) => uploadDate === since);
      if (expected.length < 100) that(`the asset of ${since} after ${since - 1}`, atIt, 'not listed');
    }
    const none = await world.page(all.id, { since: world.now() + 24 * 3600 * 1000 });
    same('assets uploaded after tomorrow', none.assets.length, 0);
  }),

  check('4.6', 'asset-type', 'assetType lists all assets of that type, and no others.', async (world) => {
    const { id, assets, isComplete } = await whole(world);
    for (const assetType of ASSET_TYPES) {
      const found = await world.list(id, { assetType });
      const other = found.find((asset) => asset.assetType !== assetType);
      if (other) throw new Failure(`only ${assetType}`, other.assetType);
      isNewestFirst(found);
      if (isComplete) same(assetType, ids(found), ids(assets.filter((asset) => asset.assetType === assetType)));
    }
  }),

  check(
    '4.6',
    'project-id',
    'projectId gives the assets of that project, all of them and no others.',
    async (world) => {
      const { id, assets, isComplete } = await whole(world);
      const projects = [...new Set(assets.flatMap(({ projectId }) => projectId ?? []))].slice(0, 10);
      if (projects.length === 0) throw new NotTried('no asset here belongs to a project');
      for (const projectId of projects) {
        const found = await world.list(id, { projectId });
        const other = found.find((asset) => asset.projectId !== projectId);
        if (other) throw new Failure(`only assets of ${projectId}`, other.projectId ?? 'one without a project');
        if (isComplete) same(projectId, ids(found), ids(assets.filter((asset) => asset.projectId === projectId)));
      }
      const unknown = await statusOf(world, id, 'projectId=prj_unknown');
      same('assets of an unknown project', unknown.count, 0);
      world.observe(`an unknown projectId: status ${unknown.status}`);
    },
  ),

  check('4.6', 'filters-together', 'since, a type or project, and the cursor work together.', async (world) => {
    const all = await whole(world);
    atLeast(20, all);
    const some = all.assets.slice(0, Math.min(all.assets.length, 100));
    const since = some.at(-1)!.uploadDate;
    const { assetType, projectId } = some.find((asset) => asset.projectId) ?? some[0]!;
    const newer = all.assets.filter(({ uploadDate }) => uploadDate > since);
    const ofType = newer.filter((asset) => asset.assetType === assetType);
    const found = await world.list(all.id, { since, assetType, limit: 2 });
    same(`${assetType} since ${since}, in pages of 2`, ids(found), ids(ofType));
    if (!projectId) return;
    const ofProject = newer.filter((asset) => asset.projectId === projectId);
    same(
      `assets of ${projectId} since ${since}`,
      ids(await world.list(all.id, { since, projectId, limit: 3 })),
      ids(ofProject),
    );
  }),

  check(
    '4.6',
    'type-or-project',
    'assetType and projectId together do not fail on the side of the service.',
    async (world) => {
      const { id } = await world.listed();
      const { status } = await statusOf(world, id, 'assetType=videos&projectId=prj_1');
      world.observe(`assetType with projectId: status ${status}`);
    },
  ),
];
