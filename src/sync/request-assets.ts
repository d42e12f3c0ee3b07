import { filtersOf, skippedBy } from '../filters/filters.ts';
import { toReason } from '../floor/errors.ts';
import type { Reason } from '../floor/reason-codes.ts';
import type { ReadableCompany } from '../store/companies/readable-companies.ts';
import type { Asset } from '../store/database/schema.ts';
import { decide } from './decide.ts';
import type { Run, SyncDeps } from './deps.ts';
import { listedOf, selectable } from './listed-asset.ts';
import { stopsRun } from './problems.ts';

/** Requests each asset that an operator named, and makes it due: its worker compares the bucket and fetches it if needed. */
export async function requestAssets(deps: SyncDeps, run: Run, readable: ReadableCompany[]): Promise<void> {
  const { sync, problems, signal } = run;
  for (const assetId of sync.scope.assetIds ?? []) {
    const known = await deps.store.assets.get(assetId);
    // Done before the run was interrupted.
    if (known?.syncId === sync.id) continue;
    try {
      const reason: Reason | undefined = known
        ? await requestAsset(deps, run, known, readable)
        : { code: 'unknown_asset' };
      if (reason) problems.add({ code: 'asset_problem', assetId, reason }, { failsRun: true });
    } catch (error) {
      if (stopsRun(error, signal)) throw error;
      problems.add(toReason(error), { failsRun: true });
    }
  }
}

/** Returns why the asset was not made due; undefined if it was. */
async function requestAsset(
  deps: SyncDeps,
  run: Run,
  known: Asset,
  readable: ReadableCompany[],
): Promise<Reason | undefined> {
  const { store, client, withToken, transcripts, thumbnails } = deps;
  const { sync, lease, signal } = run;
  const { connectionId } = sync;
  const detail = await withToken(connectionId, (token) => client.getAsset({ token, assetId: known.id, signal }));
  const { download: _, ...asset } = detail;
  const companyId = companyNow(known, readable);
  if (companyId === undefined) {
    return { code: 'asset_company_not_readable', companyId: known.companyId };
  }
  const listed = listedOf(asset);
  // An asset that is stored already is checked, also if a filter skips it now.
  if (known.media === null) {
    const settings = (await store.connections.get(connectionId))?.settings ?? {};
    const reason = skippedBy(filtersOf(settings, deps.filters), selectable(companyId, listed));
    if (reason !== null) return reason;
  }
  const { refused } = await store.syncs.recordPage({
    sync,
    lease,
    companyId,
    assets: [listed],
    decide: (before, listed) => decide(before, listed, { full: true, requested: true, transcripts, thumbnails }),
    position: {},
  });
  deps.onWork();
  return refused[0]?.reason;
}

/** The company of an asset now: details do not name it, so it is known only if unchanged or the only readable one. */
function companyNow(asset: { companyId: string }, readable: ReadableCompany[]): string | undefined {
  if (readable.some(({ id }) => id === asset.companyId)) return asset.companyId;
  return readable.length === 1 ? readable[0]!.id : undefined;
}
