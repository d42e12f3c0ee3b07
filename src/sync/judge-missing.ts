import { Rejected } from '../errors.ts';
import type { Access } from '../pacing/with-token.ts';
import type { LibraryClient } from '../source/client.ts';
import { HttpError } from '../source/http.ts';
import type { Sync, SyncPosition } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';

/** Ids per page of what is missing, and assets that are asked for at a time. */
const pageSize = 1000;
const askedAtOnce = 4;

export interface Judged {
  gone: number;
  /** So much is missing that it may be the listing that is wrong. */
  held?: { known: number; missing: number };
}

/**
 * Looks after what a complete listing of a company lacks. An asset is gone only when the service says so of it, too: a page
 * can lose one when another is deleted meanwhile, and an asset can move to another company. When half of what was known is
 * missing at once, nothing is gone before an operator says so (`acceptGone`); then his word is enough.
 */
export async function judgeMissing(
  deps: { store: Store; client: LibraryClient; withToken: Access },
  run: { sync: Sync; owner: string; leaseMs: number; companyId: string; signal: AbortSignal },
  position: SyncPosition,
): Promise<Judged> {
  const { store } = deps;
  const { sync, signal } = run;
  const accepted = sync.scope.acceptGone === true;
  const found = await store.missing.count(run);
  const held = !accepted && implausible(found) ? found : undefined;
  let gone = 0;
  for (let after = ''; found.missing > 0 && !held; ) {
    signal.throwIfAborted();
    const ids = await store.missing.page(run, { after, limit: pageSize });
    if (ids.length === 0) break;
    after = ids.at(-1)!;
    gone += await store.missing.gone(run, accepted ? ids : await thoseGone(deps, sync.connectionId, ids, signal));
  }
  await store.missing.settle(run, position, held);
  return { gone, ...(held && { held }) };
}

/** One asset may well be half of a small library. */
export function implausible({ known, missing }: { known: number; missing: number }): boolean {
  return missing > 1 && missing * 2 >= known;
}

async function thoseGone(
  { client, withToken }: { client: LibraryClient; withToken: Access },
  connectionId: string,
  ids: string[],
  signal: AbortSignal,
): Promise<string[]> {
  const gone: string[] = [];
  const waiting = [...ids];
  const ask = async () => {
    for (let assetId = waiting.shift(); assetId !== undefined; assetId = waiting.shift()) {
      try {
        await withToken(connectionId, (token) => client.getAsset({ token, assetId, signal }));
      } catch (error) {
        if (error instanceof HttpError && (error.status === 404 || error.status === 410)) gone.push(assetId);
        else if (!(error instanceof Rejected || (error instanceof HttpError && error.status < 500))) {
          waiting.length = 0;
          throw error;
        }
      }
    }
  };
  await Promise.all(Array.from({ length: askedAtOnce }, ask));
  return gone;
}
