import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../log.ts';
import type { Queues } from '../queue/queues.ts';
import { ours } from '../storage/keys.ts';
import type { Storage, StoredObject } from '../storage/storage.ts';
import {
  type Connection,
  type Verification,
  type VerificationCounts,
  type VerificationLine,
  type VerificationPhase,
  type VerificationPosition,
  verificationPhases,
} from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import type { AssetContents } from '../store/verifications/contents.ts';
import { type Finding, type Inspection, inspect, type Pair, told } from './compare-objects.ts';
import { compareKeys, expectedObjects, expectedOf, isSettled, sideBySide } from './expected-objects.ts';
import { isAbsent, whyNot } from './why-not-mirrored.ts';

export interface VerifyDeps {
  store: Store;
  storage: Storage;
  queues: Pick<Queues, 'addSync'>;
  log: Log;
  /** Writes the day's inventory now. */
  writeInventory: (signal: AbortSignal) => Promise<void>;
  /** Assets per page of the records, and objects between two saves. */
  pageSize?: number;
}

/** Another process has taken the verification over. */
export class VerificationLost extends Error {
  override readonly name = 'VerificationLost';
}

const pageSizeByDefault = 1000;
const syncPollMs = 500;
/** No statement takes so long that what it has settled is told later. */
const slackMs = 2 * 60_000;
/** A listing that makes no progress for so long is not waited for. */
const syncPatienceMs = 30 * 60_000;

/**
 * Compares library, records and bucket, phase by phase. Runs in bounded memory, and goes on where it was after its process
 * has died: what was found is saved together with how far it came.
 *
 * The library comes first: a full sync brings into the records whatever it lists. So what is left to compare is the records
 * and the bucket, and what of the library never came that far. A routine one follows a listing, and compares only the former.
 */
export async function verify(deps: VerifyDeps, run: Verification, owner: string, signal: AbortSignal): Promise<void> {
  const { store } = deps;
  const { connectionId } = run;
  const options = run.options as Verification['options'];
  const pageSize = deps.pageSize ?? pageSizeByDefault;
  const counts: VerificationCounts = { ...nothingFound, ...run.counts };
  let position: VerificationPosition = { ...run.position };
  // What is read takes long: then saved more often.
  const most = options.deep ? Math.min(pageSize, 50) : pageSize;

  async function save(found: Finding[], next: VerificationPosition): Promise<void> {
    signal.throwIfAborted();
    const lines: VerificationLine[] = [];
    for (const line of found) {
      if (!line) {
        counts.moving++;
        continue;
      }
      counts[countOf(line)]++;
      if (line.mark === '=' ? options.all : line.mark !== '+' || !options.routine) lines.push(line);
    }
    counts.lines += lines.length;
    position = { ...(position.since !== undefined && { since: position.since }), ...next };
    if (!(await store.verifications.save(run.id, owner, { lines, counts, position }))) {
      throw new VerificationLost(`another process goes on with the verification ${run.id}`);
    }
  }

  async function compareAll(batch: Pair[], others: Finding[], next: VerificationPosition): Promise<void> {
    const seen: Inspection['seen'] = [];
    const copied: Inspection['copied'] = [];
    const one = connectionId !== null;
    const findings = await inspect(deps, batch, { ...options, one, counts, seen, copied, signal });
    // Where a disk is not mounted any more, everything seems to be missing; where another is, to differ.
    if (findings.some((finding) => finding?.difference && finding.mark !== '+')) await deps.storage.check();
    for (const { left } of batch) if (left?.kind === 'media') counts.assets++;
    await store.contents.verified(seen);
    await store.contents.copied(copied);
    await save([...findings, ...others], next);
  }

  const phases: Record<VerificationPhase, () => Promise<void>> = {
    library: async () => {
      const problems = await listLibrary(deps, {
        connectionId,
        known: position.syncs ?? {},
        onAsked: (syncs) => save([], { phase: 'library', syncs }),
        signal,
      });
      await save(problems, { phase: 'objects' });
    },

    objects: async () => {
      const after = position.key ?? '';
      if (after === '') {
        counts.assetsTotal = await store.contents.count(connectionId ?? undefined);
        await save([], {
          phase: 'objects',
          ...(!options.routine && { since: (await store.now()) - slackMs }),
        });
      }
      const expected = expectedObjects(store, {
        after,
        connectionId: connectionId ?? undefined,
        pageSize,
        settledBefore: position.since === undefined ? undefined : new Date(position.since),
      });
      const pairs = sideBySide(expected, objectsBehind(deps.storage, after, signal));
      let batch: Pair[] = [];
      const look = async () => {
        if (batch.length === 0) return;
        await compareAll(batch, [], { phase: 'objects', key: batch.at(-1)!.key });
        batch = [];
      };
      for await (const pair of pairs) {
        batch.push(pair);
        if (batch.length >= most) await look();
      }
      await look();
    },

    assets: async () => {
      const since = new Date(position.since!);
      for (let after = position.assetId ?? ''; ; ) {
        const page = await store.contents.openSince({
          after,
          limit: most,
          connectionId: connectionId ?? undefined,
          since,
        });
        if (!page) return;
        after = page.last;
        const arrived = page.rows.flatMap(expectedOf).map((left): Pair => ({ key: left.key, left, right: 'unlisted' }));
        const others = page.rows.filter((row) => !isSettled(row)).map(missingAsset);
        await compareAll(arrived, others, { phase: 'assets', assetId: after });
      }
    },

    repair: async () => {
      if (options.repair && counts.missing + counts.different > 0) await deps.storage.check();
      for (let after = position.assetId ?? ''; options.repair; ) {
        const page = await store.verifications.remedies(run.id, { after, limit: 500 });
        for (const { assetId, what } of page) if (await store.contents.mend(assetId, what)) counts.repaired++;
        if (page.length === 0) return;
        after = page.at(-1)!.assetId;
        await save([], { phase: 'repair', assetId: after });
      }
    },

    inventory: async () => {
      if (options.inventory) await deps.writeInventory(signal);
    },

    end: async () => {},
  };

  const all: readonly VerificationPhase[] = options.routine ? routinePhases : verificationPhases;
  for (const phase of all.slice(position.phase ? all.indexOf(position.phase) : 0)) {
    if (position.phase !== phase) await save([], { phase });
    await phases[phase]();
  }
  const { missing, different, errors, foreign, repaired } = counts;
  const differs = options.routine && missing + different + errors > 0;
  await store.verifications.done(
    run.id,
    owner,
    differs ? { missing, different, errors, foreign, repaired } : undefined,
  );
  const found = { verificationId: run.id, ...(connectionId && { connectionId }), ...counts };
  if (differs) deps.log.warn(found, 'the bucket differs from the records; what can be had again was asked for');
  else if (options.routine) deps.log.info(found, 'the bucket has what the records say');
  else deps.log.info(found, differencesIn(counts) > 0 ? 'verified: differences' : 'verified');
}

const routinePhases: readonly VerificationPhase[] = ['objects', 'repair', 'end'];

export const nothingFound: VerificationCounts = {
  lines: 0,
  same: 0,
  missing: 0,
  foreign: 0,
  different: 0,
  errors: 0,
  absent: 0,
  skipped: 0,
  moving: 0,
  assets: 0,
  assetsTotal: 0,
  bytesRead: 0,
  repaired: 0,
};

const countNames = { '=': 'same', '-': 'missing', '+': 'foreign', '*': 'different', '!': 'errors' } as const;
function countOf({ mark, difference, skipped }: NonNullable<Finding>) {
  if (mark !== '-' || difference) return countNames[mark];
  return skipped ? ('skipped' as const) : ('absent' as const);
}

export function differencesIn(counts: Partial<VerificationCounts>): number {
  const { missing = 0, foreign = 0, different = 0, errors = 0 } = counts;
  return missing + foreign + different + errors;
}

/** Asks for a full sync of each connection and waits until they have ended. Returns what could not be listed. */
async function listLibrary(
  deps: VerifyDeps,
  options: {
    connectionId: string | null;
    /** Asked for by an earlier lease at the same verification. */
    known: Record<string, string>;
    onAsked: (syncs: Record<string, string>) => Promise<void>;
    signal: AbortSignal;
  },
): Promise<VerificationLine[]> {
  const { store, queues } = deps;
  const { connectionId, signal } = options;
  const problems: VerificationLine[] = [];
  const unlisted = (connection: Connection, why: string) =>
    problems.push(told('!', `the library was not compared for connection ${connection.id}: ${why}`));

  const connections = (await store.connections.list()).filter(({ id }) => connectionId === null || id === connectionId);
  const syncs = { ...options.known };
  for (const connection of connections) {
    if (connection.status !== 'active') continue;
    const id = syncs[connection.id] ?? (await store.syncs.request(connection.id, 'full'));
    if (id === undefined) continue;
    syncs[connection.id] = id;
    await queues.addSync(connection.id).catch(() => {});
  }
  await options.onAsked(syncs);

  for (const connection of connections) {
    const syncId = syncs[connection.id];
    let progress = { pages: -1, at: performance.now() };
    for (;;) {
      const sync = syncId === undefined ? undefined : await store.syncs.get(syncId);
      if (sync?.status === 'done') break;
      if (sync?.status === 'failed') {
        unlisted(connection, sync.error ?? 'its full sync failed');
        break;
      }
      const now = await store.connections.get(connection.id);
      if (!sync || now?.status !== 'active') {
        unlisted(connection, `it is ${now?.status ?? 'gone'}`);
        break;
      }
      if (sync.pages !== progress.pages) progress = { pages: sync.pages, at: performance.now() };
      if (performance.now() - progress.at > syncPatienceMs) {
        unlisted(connection, `its full sync has made no progress for ${syncPatienceMs / 60_000} minutes`);
        break;
      }
      await sleep(syncPollMs, undefined, { signal });
    }
  }
  return problems;
}

/** What is listed behind a key, without what is the mirror's own. */
async function* objectsBehind(storage: Storage, after: string, signal: AbortSignal): AsyncGenerator<StoredObject> {
  for await (const object of storage.list('', { signal })) {
    if (!object.key.startsWith(ours) && (after === '' || compareKeys(object.key, after) > 0)) yield object;
  }
}

/** Of an asset that is listed and not in the bucket. */
function missingAsset(asset: AssetContents): Finding {
  const why = whyNot(asset);
  if (why === null) return undefined;
  const name = asset.name ? `${asset.name}: ` : '';
  const skipped = asset.skipped !== null;
  return { ...told('-', `${name}${why}`), assetId: asset.id, difference: !skipped && !isAbsent(asset), skipped };
}
