import { setTimeout as sleep } from 'node:timers/promises';
import type { Asked, ConnectionSummary, Status, Sync, Verification } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { RefusedByService } from '../failures.ts';
import { findConnection } from '../find-connection.ts';
import { liveLine, transferLine } from '../live.ts';
import { counted, harmless, number, paint, print, printJson } from '../output.ts';
import { waitReporter, whyAssetsWait, whyConnectionWaits } from '../why-waiting.ts';

interface ResyncOptions {
  full?: boolean;
  since?: Date;
  company?: string;
  project?: string;
  type?: string;
  asset?: string[];
  acceptGone?: true;
  acceptReplaced?: true;
  acceptRemoved?: true;
  wait?: boolean;
  json?: boolean;
}

const pollMs = 500;
/** How often to check whether all pending assets are stuck. */
const checkMs = 10_000;
/** If no worker takes the sync for this long, none can. */
const untakenMs = 300_000;

/**
 * Starts a sync. With `wait`, returns when all assets that it found are mirrored, and the bucket is verified if the sync includes that.
 * Returns the number of failures.
 */
export async function resync(api: ApiClient, given: string, options: ResyncOptions): Promise<number> {
  const connectionId = await findConnection(api, given);
  const { full, acceptGone, acceptReplaced, acceptRemoved } = options;
  const request: Asked<'resync', 1> = {
    mode: full || acceptGone || acceptReplaced || acceptRemoved ? 'full' : 'incremental',
    since: options.since?.toISOString(),
    companyId: options.company,
    projectId: options.project,
    assetType: options.type,
    assetIds: options.asset,
    acceptGone,
    acceptReplaced,
    acceptRemoved,
  };
  const before = options.wait ? await failedAndNotRetried(api, connectionId, request) : 0;
  const { syncId } = await api.resync(connectionId, request);
  const kind = request.mode === 'full' ? 'a full' : 'an incremental';
  if (!options.wait) {
    if (options.json) printJson({ syncId });
    else print(`Started ${kind} sync (${syncId}). Watch it with \`asset-mirror status --watch\`.`);
    return 0;
  }
  if (!options.json) print(`Started ${kind} sync (${syncId}).`);
  const { sync, connection, verification } = await untilMirrored(api, connectionId, syncId, options.json === true);
  const failed = Math.max(0, connection.counts.byState.failed - before);
  const bucket = verification && { status: verification.status, ...verification.counts };
  if (options.json) printJson({ sync, counts: connection.counts, failed, bucket });
  else for (const line of summary(sync, connection, verification, failed)) print(line);
  const failures = [
    sync.error !== null,
    verification?.status === 'failed',
    verification !== undefined && (await hasUnrepaired(api, verification)),
  ];
  return failed + failures.filter(Boolean).length;
}

/** Whether the verification has found damage of an asset that it did not repair. The repairs themselves were waited for. */
async function hasUnrepaired(api: ApiClient, { id, counts }: Verification): Promise<boolean> {
  const damaged = new Set<string | null>();
  for (let after: number | null = 0; after !== null; ) {
    const page: Verification = await api.verification(id, { after, limit: 1000 });
    for (const { difference, mark, assetId } of page.lines) if (difference && mark !== '+') damaged.add(assetId);
    after = page.next;
  }
  return counts.errors > 0 || damaged.size > counts.repaired;
}

/**
 * How many assets of the connection have failed before and are not retried by the sync. A full sync retries all, so it is 0; if it is
 * limited to a part, failed assets outside of the part count as failures of the sync.
 */
async function failedAndNotRetried(
  api: ApiClient,
  connectionId: string,
  { mode, assetIds = [] }: Asked<'resync', 1>,
): Promise<number> {
  if (mode === 'full') return 0;
  const { failed } = (await api.connection(connectionId)).counts.byState;
  let retried = 0;
  for (const named of new Set(assetIds)) {
    const { assets } = await api.assets({ connectionId, state: 'failed', q: named });
    if (assets.some(({ id }) => id === named)) retried++;
  }
  return failed - retried;
}

/** Waits until the sync and its verification have ended, and nothing of the connection is pending. */
async function untilMirrored(api: ApiClient, connectionId: string, syncId: string, silent: boolean) {
  const live = liveLine({ silent });
  const reportWaits = waitReporter(live.say);
  process.once('SIGINT', () => {
    live.say('Stopped waiting. The work continues in asset-mirror: see `asset-mirror status --watch`.');
    process.exit(130);
  });
  let wasCompared = false;
  let nextCheck = 0;
  let untakenSince = performance.now();
  try {
    for (;;) {
      const [sync, connection, status] = await Promise.all([
        api.sync(syncId),
        api.connection(connectionId),
        api.status(),
      ]);
      const { pending, transferring } = connection.counts.byState;
      const ended = sync.finishedAt !== null;
      if (ended && sync.status === 'failed') return { sync, connection };
      const verification =
        sync.verificationId === null
          ? undefined
          : await unlessForgotten(api.verification(sync.verificationId, { after: 0, limit: 0 }));
      const compared = verification === undefined || verification.finishedAt !== null;
      // Assets to repair may be counted only after the verification has ended, so a second request must also find no work.
      const isOver = ended && compared && pending + transferring === 0;
      if (isOver && wasCompared) return { sync, connection, verification };
      wasCompared = ended && compared;
      let waiting = isOver ? undefined : whyConnectionWaits(connection);
      // A running sync may be the one that it waits for.
      if (sync.status !== 'waiting' || status.syncs.running > 0) untakenSince = performance.now();
      if (performance.now() - untakenSince > untakenMs) {
        waiting ??= 'no worker has taken the sync for 5 minutes. Check that one runs, and its log';
      }
      if (ended && compared && performance.now() >= nextCheck) {
        waiting ??= await whyAssetsWait(api, connection);
        nextCheck = performance.now() + checkMs;
      }
      if (waiting) throw new Error(`stopped waiting: ${waiting}`);
      if (!reportWaits(status, connection)) live.show(progressLine({ sync, connection, status, verification }));
      await sleep(pollMs);
    }
  } finally {
    live.end();
  }
}

/** The progress of the step that runs: the listing, the transfers or the verification. */
function progressLine(now: {
  sync: Sync;
  connection: ConnectionSummary;
  status: Status;
  verification: Verification | undefined;
}): string {
  const { sync, connection, status, verification } = now;
  const { byState } = connection.counts;
  const moving = byState.pending + byState.transferring;
  if (sync.finishedAt === null) return listingLine(sync);
  if (moving === 0 && verification !== undefined) return bucketLine(verification);
  const total = Object.values(byState).reduce((sum, n) => sum + n, 0);
  return transferLine(total - moving, total, status);
}

const listingLine = ({ status, pages, seen, new: fresh, changed }: Sync) =>
  status === 'waiting'
    ? 'waiting for a worker'
    : `listing: ${counted(pages, 'page')}, ${number(seen)} seen, ${number(fresh)} new, ${number(changed)} changed`;

const bucketLine = ({ status, progress: { done, total } }: Verification) =>
  status === 'waiting'
    ? 'verification: waiting for a worker, or for another verification'
    : total === 0
      ? 'verification: starting'
      : `verification: ${number(done)} of ${counted(total, 'asset')}`;

/** Undefined if the verification is no longer kept; then it has ended. */
const unlessForgotten = (answer: Promise<Verification>) =>
  answer.catch((error) => {
    if (error instanceof RefusedByService && error.problem.status === 404) return undefined;
    throw error;
  });

function summary(
  sync: Sync,
  { counts }: ConnectionSummary,
  verification: Verification | undefined,
  failed: number,
): string[] {
  const { processing, unavailable } = counts.byState;
  const found = `${number(sync.seen)} seen, ${number(sync.new)} new, ${number(sync.changed)} changed, ${number(sync.gone)} gone`;
  return [
    sync.status === 'failed'
      ? `${paint('red', '✗')} The sync failed: ${harmless(sync.error ?? '')}`
      : `${paint('green', '✓')} ${found}; ${number(counts.byState.mirrored)} mirrored in total.`,
    ...(sync.status === 'done' && sync.error ? [`${paint('yellow', '!')} ${harmless(sync.error)}`] : []),
    ...(verification ? [bucketSummary(verification)] : []),
    ...(processing > 0
      ? [`${counted(processing, 'video')} still processing at the library; mirrored when ready.`]
      : []),
    ...(unavailable > 0 ? [`${counted(unavailable, 'asset')} without a file in the library.`] : []),
    ...(failed > 0
      ? [
          paint(
            'red',
            `${counted(failed, 'asset')} failed. See the reasons with \`asset-mirror assets --state failed\`.`,
          ),
        ]
      : []),
  ];
}

function bucketSummary({ status, error, counts }: Verification): string {
  if (status === 'failed') return `${paint('red', '✗')} The verification failed: ${harmless(error ?? '')}`;
  const { missing, different, errors, repaired } = counts;
  if (missing + different + errors === 0) return 'Bucket verified: no differences.';
  const found = Object.entries({ missing, different, errors })
    .filter(([, count]) => count > 0)
    .map(([word, count]) => `${number(count)} ${word}`);
  return `${paint('yellow', '!')} Bucket verified: ${found.join(', ')}; repairing ${counted(repaired, 'asset')}.`;
}
