import type { Stage } from '../support/stage.ts';

/** The state of each asset of a company. */
export const states = async (stage: Stage, companyId: string) =>
  Object.fromEntries((await stage.assets(companyId)).map(({ id, state }) => [id, state]));

/** The ids of the assets of a company that are marked as gone. */
export const gone = async (stage: Stage, companyId: string) =>
  (await stage.assets(companyId)).filter(({ state }) => state === 'gone').map(({ id }) => id);

/** How many requests for one of these assets the library got. */
export const askedFor = async (stage: Stage, ids: string[]) =>
  (await stage.admin.requests({ endpoint: 'asset' })).filter(({ assetId }) => ids.includes(assetId!)).length;
