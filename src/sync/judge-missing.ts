import { concurrently } from '../floor/concurrently.ts';
import { Disconnected, Rejected, toReason } from '../floor/errors.ts';
import { isTooMany, logHeld, sampleSize } from '../floor/held-changes.ts';
import type { ListingDoubt } from '../floor/reason-codes.ts';
import { HttpError } from '../source/http.ts';
import type { Run, SyncDeps } from './deps.ts';
import { stopsRun } from './problems.ts';

/** Missing assets per page. */
const pageSize = 1000;
/** The same if each asset is requested: an interrupted run repeats the requests of a page. */
const requestedSize = 50;
/** Requests to the library at a time. */
const requestsAtOnce = 4;

/**
 * Judges the assets that the listing of a company lacks. An asset is gone only if a request for it confirms that, or an
 * operator (`acceptGone`): a page can lose one when another is deleted meanwhile, and an asset can move to another company.
 * If too many are missing, none is marked as gone until an operator confirms it. After a doubtful listing, GONE_RETENTION
 * removes nothing of the company until a full sync has listed all of it.
 */
export async function judgeMissing(
  deps: SyncDeps,
  run: Run,
  companyId: string,
  { doubt }: { doubt?: ListingDoubt | undefined },
): Promise<void> {
  const { store, log } = deps;
  const { sync, lease, signal } = run;
  const { connectionId } = sync;
  const company = { sync, lease, companyId };
  const { acceptGone = false } = sync.scope;
  // A doubtful listing may lack more than the operator has accepted: then each asset is requested.
  const accepted = acceptGone && !doubt;
  const found = await store.missing.count(company);
  const isHeld = !acceptGone && isTooMany('missing', found, run.settings);
  let gone = 0;
  try {
    // Handles only as many as were counted: the connection may get assets of another connection meanwhile.
    for (let after = '', left = found.count; left > 0 && !isHeld; ) {
      signal.throwIfAborted();
      const limit = Math.min(left, accepted ? pageSize : requestedSize);
      const ids = await store.missing.page(company, { after, limit });
      if (ids.length === 0) break;
      after = ids.at(-1)!;
      left -= ids.length;
      const judged = accepted ? { gone: ids, present: [] } : await judgeByRequest(deps, run, ids);
      // Its lease has ended.
      if (judged.stopped instanceof Disconnected) throw judged.stopped;
      gone += await store.missing.markGone(company, judged.gone);
      await store.missing.addSighted(company, judged.present);
      if (judged.stopped === undefined) continue;
      if (judged.gone.length + judged.present.length > 0) await store.syncs.forgetWaits(company);
      throw judged.stopped;
    }
  } finally {
    if (gone > 0) log.warn({ event: 'asset.gone', connectionId, companyId, gone }, 'assets gone from the library');
  }
  const sample = isHeld ? await store.missing.page(company, { after: '', limit: sampleSize }) : [];
  const held = isHeld ? { ...found, sample } : undefined;
  const isNew = await store.missing.endListing(company, { held, doubt });
  const change = { ...found, kind: 'missing', connectionId, companyId } as const;
  if (isNew) logHeld(log, change);
  if (isHeld) run.problems.addHeld(change);
}

/**
 * Requests assets. `gone`: the library does not have them; `present`: it has them, or refuses to say. If it fails for an asset, the
 * asset is in neither list, and is a problem of the run. `stopped`: an error that stops the run; the answers before it count, so that
 * a library that allows only a few requests at a time is asked once for each asset. @throws if the library fails for each asset of a
 * whole page
 */
async function judgeByRequest(
  { client, withToken }: SyncDeps,
  { sync, problems, signal }: Run,
  ids: string[],
): Promise<{ gone: string[]; present: string[]; stopped?: unknown }> {
  const gone: string[] = [];
  const present: string[] = [];
  const failures: unknown[] = [];
  let stopped: unknown;
  await concurrently(ids, requestsAtOnce, async (assetId) => {
    try {
      await withToken(sync.connectionId, (token) => client.getAsset({ token, assetId, signal }));
      present.push(assetId);
    } catch (error) {
      if (error instanceof HttpError && (error.status === 404 || error.status === 410)) gone.push(assetId);
      else if (stopsRun(error, signal)) throw error;
      // A refusal confirms nothing: the asset stays.
      else if (error instanceof Rejected || (error instanceof HttpError && error.status < 500)) present.push(assetId);
      else failures.push(error);
    }
  }).catch((error) => {
    stopped = error;
  });
  if (failures.length >= requestedSize) throw failures[0];
  for (const error of failures) problems.add(toReason(error), { failsRun: true });
  return { gone, present, stopped };
}
