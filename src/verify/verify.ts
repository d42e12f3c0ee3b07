import { batches } from '../floor/batches.ts';
import type { Log } from '../floor/log.ts';
import type { Queues } from '../queue/queues.ts';
import { ours } from '../storage/keys.ts';
import type { Storage, StoredObject } from '../storage/storage.ts';
import {
  type Verification,
  type VerificationPhase,
  type VerificationPosition,
  verificationPhases,
} from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import type { AssetContents } from '../store/verifications/contents.ts';
import { pairsOf } from './compare-asset.ts';
import { compareObjects, type Pair } from './compare-objects.ts';
import { compareVersions } from './compare-versions.ts';
import { differencesIn } from './counts.ts';
import { compareKeys, expectedObjects, isSettled, sideBySide } from './expected-objects.ts';
import { differencesAmong, type Finding, verificationLine } from './finding.ts';
import { listLibrary } from './list-library.ts';
import { Progress } from './progress.ts';
import { isAbsent, whyNot } from './why-not-mirrored.ts';

export interface VerifyDeps {
  store: Store;
  storage: Storage;
  queues: Pick<Queues, 'offerSyncs'>;
  log: Log;
  /** Writes the day's inventory now. */
  writeInventory: (signal: AbortSignal) => Promise<void>;
}

/** What the phases of one verification share. */
interface Context extends VerifyDeps {
  run: Verification;
  /** Undefined: all connections. */
  connectionId: string | undefined;
  progress: Progress;
  signal: AbortSignal;
  /** Smaller if objects are read, which is slow, so that progress is saved often. */
  batchSize: number;
}

/** Assets per page of the records, and objects between two saves. */
const pageSize = 1000;

/** `settledAt` is set before its transaction commits. No transaction that sets it takes longer than this. */
const slackMs = 2 * 60_000;

const scheduledPhases: readonly VerificationPhase[] = ['objects', 'repair', 'end'];

/**
 * Compares library, records and bucket, phase by phase, in bounded memory. Continues where it was after a crash. Full syncs
 * record the listing of the library first. A scheduled verification only compares the objects with the records, and requests
 * repairs.
 */
export async function verify(deps: VerifyDeps, run: Verification, owner: string, signal: AbortSignal): Promise<void> {
  const { store, log } = deps;
  const { options } = run;
  const connectionId = run.connectionId ?? undefined;
  const progress = new Progress(store, run, owner, signal);
  const batchSize = options.deep ? 50 : pageSize;
  const context = { ...deps, run, connectionId, progress, signal, batchSize };
  const all = options.scheduled ? scheduledPhases : verificationPhases;
  const { phase: begun } = progress.position;
  for (const phase of all.slice(begun ? all.indexOf(begun) : 0)) {
    if (progress.position.phase !== phase) await progress.save([], { phase });
    await phases[phase](context);
  }

  const { counts } = progress;
  const { missing, different, errors, foreign, repaired } = counts;
  const differences = differencesIn(counts, options);
  const differs = options.scheduled && differences > 0;
  const event = differs ? { missing, different, errors, foreign, repaired } : undefined;
  await store.verifications.done(run.id, owner, event);
  const found = { verificationId: run.id, ...(connectionId && { connectionId }), ...counts };
  if (differs && repaired > 0) {
    log.warn(
      { event: 'verification.repair_requested', ...found },
      'bucket differs from the database, repair requested',
    );
  } else if (differs) {
    log.warn(
      { event: 'verification.differences_found', ...found },
      'bucket differs from the database, nothing can be repaired now',
    );
  } else log.info({ event: 'verification.done', ...found, differences }, 'verification done');
}

const phases: Record<VerificationPhase, (context: Context) => Promise<void>> = {
  async library(context) {
    const { run, progress, signal } = context;
    const problems = await listLibrary(context, {
      connectionId: run.connectionId,
      known: progress.position.syncs ?? {},
      onRequested: (syncs) => progress.save([], { phase: 'library', syncs }),
      signal,
    });
    await progress.save(problems, { phase: 'objects' });
  },
  objects: compareBucket,
  assets: compareSettledSince,
  versions: compareKeptVersions,
  repair,
  async inventory({ run, signal, writeInventory }) {
    if (run.options.inventory) await writeInventory(signal);
  },
  // Has no work: after a crash, the run continues here, and does not repeat the phase before.
  async end() {},
};

/** Compares the objects in the bucket with those that should be there, in the order of their keys. */
async function compareBucket(context: Context): Promise<void> {
  const { store, storage, run, connectionId, progress, signal } = context;
  const after = progress.position.key ?? '';
  if (after === '') {
    progress.counts.assetsTotal = await store.contents.count(connectionId);
    // Only the phase `assets` compares what settles from now on. Scheduled verifications do not have it.
    const start = run.options.scheduled ? {} : { since: (await store.now()) - slackMs };
    await progress.save([], { phase: 'objects', ...start });
  }
  const { since } = progress.position;
  const settledBefore = since === undefined ? undefined : new Date(since);
  const expected = expectedObjects(store, { after, connectionId, pageSize, settledBefore });
  const pairs = sideBySide(expected, objectsAfter(storage, after, signal));
  for await (const batch of batches(pairs, context.batchSize)) {
    await compareBatch(context, batch, [], { phase: 'objects', key: batch.at(-1)!.key });
  }
}

/** Compares assets that settled while the bucket was listed, and reports assets that are not in the bucket. */
async function compareSettledSince(context: Context): Promise<void> {
  const { store, connectionId, progress, batchSize: limit } = context;
  const since = new Date(progress.position.since!);
  for (let after = progress.position.assetId ?? ''; ; ) {
    const page = await store.contents.openSince({ after, limit, connectionId, since });
    if (!page) return;
    after = page.last;
    const arrived = page.rows.flatMap(pairsOf);
    const others = page.rows.filter((row) => !isSettled(row)).map(missingAsset);
    await compareBatch(context, arrived, others, { phase: 'assets', assetId: after });
  }
}

/** Compares superseded files that are kept. Scheduled verifications do not, because none can be repaired. */
async function compareKeptVersions(context: Context): Promise<void> {
  const { store, storage, run, connectionId, progress, signal } = context;
  const limit = Math.min(context.batchSize, 100);
  const { assetId, replacedAt } = progress.position;
  let after = assetId && replacedAt ? { assetId, replacedAt: new Date(replacedAt) } : undefined;
  for (;;) {
    const page = await store.versions.page({ after, limit, connectionId });
    after = page.at(-1);
    if (!after) return;
    const findings = await compareVersions(context, page, { ...run.options, counts: progress.counts, signal });
    if (differencesAmong(findings).length > 0) await storage.check();
    await progress.save(findings, {
      phase: 'versions',
      assetId: after.assetId,
      replacedAt: after.replacedAt.getTime(),
    });
    if (page.length < limit) return;
  }
}

async function repair({ store, storage, run, progress }: Context): Promise<void> {
  const { counts } = progress;
  if (!run.options.repair) return;
  if (counts.missing + counts.different > 0) await storage.check();
  for (let after = progress.position.assetId ?? ''; ; ) {
    const page = await store.verifications.remedies(run.id, { after, limit: 500 });
    for (const { assetId, what } of page)
      if ((await store.contents.requestRepair(assetId, what)) === 'requested') counts.repaired++;
    if (page.length === 0) return;
    after = page.at(-1)!.assetId;
    await progress.save([], { phase: 'repair', assetId: after });
  }
}

/** Compares a batch of objects, and saves the findings with `others`. */
async function compareBatch(
  context: Context,
  batch: Pair[],
  others: Finding[],
  next: VerificationPosition,
): Promise<void> {
  const { store, storage, run, progress, signal } = context;
  const { counts } = progress;
  const skipForeign = run.connectionId !== null;
  const { findings, learned } = await compareObjects(context, batch, { ...run.options, skipForeign, counts, signal });
  // Without the right disk or bucket, everything would be missing or different.
  if (differencesAmong(findings).some(({ mark }) => mark !== '+')) await storage.check();
  for (const { expected } of batch) if (expected?.kind === 'media') counts.assets++;
  await store.contents.verified(learned.verified);
  await store.contents.copied(learned.copied);
  await store.contents.hashed(learned.hashed);
  await progress.save([...findings, ...others], next);
}

/** The listed objects after a key, without the mirror's own files. */
async function* objectsAfter(storage: Storage, after: string, signal: AbortSignal): AsyncGenerator<StoredObject> {
  for await (const object of storage.list('', { signal })) {
    if (!object.key.startsWith(ours) && (after === '' || compareKeys(object.key, after) > 0)) yield object;
  }
}

/** The finding for an asset that is not in the bucket. */
function missingAsset(asset: AssetContents): Finding {
  const why = whyNot(asset);
  if (why === null) return 'moving';
  const { name, skipped } = asset;
  return {
    ...verificationLine('-', { ...why, name }),
    assetId: asset.id,
    difference: !skipped && !isAbsent(asset),
    skipped,
  };
}
