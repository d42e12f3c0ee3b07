import { setTimeout as sleep } from 'node:timers/promises';
import { formatBytes, formatDuration } from '../../units.ts';
import type { ConnectionSummary, ResyncRequest, Status, Sync, Verification } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { RefusedByService, UsageError } from '../failures.ts';
import { liveLine } from '../live.ts';
import { bar, counted, harmless, number, paint, print, printJson } from '../output.ts';

export interface ResyncOptions {
  full?: boolean;
  since?: string;
  company?: string;
  project?: string;
  type?: string;
  asset?: string[];
  acceptGone?: boolean;
  wait?: boolean;
  json?: boolean;
}

const pollMs = 500;

/**
 * Asks for a run of a connection; with `wait`, until the bucket is compared, if that comes behind it, and until what was found
 * is mirrored. Returns how much of that failed.
 */
export async function resync(api: ApiClient, connectionId: string, options: ResyncOptions): Promise<number> {
  const request: ResyncRequest = {
    mode: options.full || options.acceptGone ? 'full' : 'incremental',
    ...(options.since !== undefined && { since: timeOf(options.since) }),
    ...(options.company !== undefined && { companyId: options.company }),
    ...(options.project !== undefined && { projectId: options.project }),
    ...(options.type !== undefined && { assetType: options.type }),
    ...(options.asset !== undefined && { assetIds: options.asset }),
    ...(options.acceptGone && { acceptGone: true }),
  };
  const before = options.wait ? (await api.connection(connectionId)).counts.byState.failed : 0;
  const { syncId } = await api.resync(connectionId, request);
  const kind = request.mode === 'full' ? 'a full' : 'an incremental';
  if (!options.wait) {
    if (options.json) printJson({ syncId });
    else print(`Asked for ${kind} sync (${syncId}). \`asset-mirror status --watch\` shows it.`);
    return 0;
  }
  if (!options.json) print(`Asked for ${kind} sync (${syncId}).`);
  const { sync, connection, verification } = await untilMirrored(api, connectionId, syncId, options.json === true);
  const failed = Math.max(0, connection.counts.byState.failed - before);
  const bucket = verification && { status: verification.status, ...verification.counts };
  if (options.json) printJson({ sync, counts: connection.counts, failed, bucket });
  else for (const line of summary(sync, connection, verification, failed)) print(line);
  return failed + [sync, verification].filter((run) => run?.status === 'failed').length;
}

/** Until the run has ended, with the comparison behind it, and nothing of the connection moves any more. */
async function untilMirrored(api: ApiClient, connectionId: string, syncId: string, silent: boolean) {
  const live = liveLine({ silent });
  let wasCompared = false;
  let said: string | undefined;
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
          : await kept(api.verification(sync.verificationId, { after: 0, limit: 0 }));
      const compared = verification === undefined || verification.finishedAt !== null;
      // What it has asked for is seen in the counts of the next round at the latest.
      const isOver = ended && compared && pending + transferring === 0;
      if (isOver && wasCompared) return { sync, connection, verification };
      wasCompared = ended && compared;
      if (!isOver && connection.status !== 'active') {
        const remedy = connection.status === 'paused' ? 'resume' : 'connect-link --connection';
        throw new Error(
          `the connection is ${connection.status}, so this waits no longer; after \`asset-mirror ${remedy} ${connectionId}\` ` +
            'what is left comes by itself',
        );
      }
      const pause = pauseOf(connection);
      if (pause === undefined) {
        const waits = pending + transferring > 0 || verification === undefined;
        live.show(!ended ? listingLine(sync) : waits ? transferLine(connection, status) : bucketLine(verification));
      } else if (pause !== said) live.say(`${paint('yellow', '~')} ${pause}`);
      said = pause;
      await sleep(pollMs);
    }
  } finally {
    live.end();
  }
}

/** Why nothing is asked for at present, and until when. */
function pauseOf({ adaptiveLimit, lastError }: ConnectionSummary): string | undefined {
  if (adaptiveLimit.parkedUntil === null) return undefined;
  return `The connection waits until ${adaptiveLimit.parkedUntil}${lastError ? `: ${harmless(lastError)}` : ''}`;
}

const listingLine = ({ status, pages, seen, new: fresh, changed }: Sync) =>
  status === 'waiting'
    ? 'waits for a worker'
    : `listing: ${counted(pages, 'page')}, ${number(seen)} seen, ${number(fresh)} new, ${number(changed)} changed`;

function transferLine(connection: ConnectionSummary, status: Status): string {
  const { byState } = connection.counts;
  const moving = byState.pending + byState.transferring;
  const total = Object.values(byState).reduce((sum, n) => sum + n, 0);
  const parts = [
    `${number(total - moving)}/${number(total)}`,
    `${formatBytes(status.rate.bytesPerSecond)}/s`,
    ...(status.timeLeft ? [`${formatDuration(status.timeLeft * 1000)} left`] : []),
    ...(status.outstanding.later > 0 ? [`${number(status.outstanding.later)} tried again after an error`] : []),
    ...(status.bucket.ok ? [] : ['the bucket takes nothing']),
  ];
  return `${bar(total - moving, total, 16)} ${parts.join('  ')}`;
}

const bucketLine = ({ status, progress: { done, total } }: Verification) =>
  status === 'waiting'
    ? 'the comparison of the bucket waits for a worker, or for another one to end'
    : total === 0
      ? 'comparing the bucket with the records'
      : `comparing the bucket: ${number(done)} of ${counted(total, 'asset')}`;

/** One that is forgotten by now has ended. */
const kept = (answer: Promise<Verification>) =>
  answer.catch((error) => {
    if (error instanceof RefusedByService && error.status === 404) return undefined;
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
      : `${paint('green', '✓')} ${found}; ${number(counts.byState.mirrored)} mirrored in all.`,
    ...(sync.status === 'done' && sync.error ? [`${paint('yellow', '!')} ${harmless(sync.error)}`] : []),
    ...(verification ? [bucketSummary(verification)] : []),
    ...(processing > 0
      ? [`${counted(processing, 'video')} still transcoding at the library; they come by themselves.`]
      : []),
    ...(unavailable > 0 ? [`${counted(unavailable, 'asset')} of which the library has no file.`] : []),
    ...(failed > 0
      ? [paint('red', `${counted(failed, 'asset')} failed: \`asset-mirror assets --state failed\` says why.`)]
      : []),
  ];
}

function bucketSummary({ status, error, counts }: Verification): string {
  if (status === 'failed') return `${paint('red', '✗')} The bucket could not be compared: ${harmless(error ?? '')}`;
  const { missing, different, errors, repaired } = counts;
  if (missing + different + errors === 0) return 'The bucket was compared: it has what the records say.';
  const found = Object.entries({ missing, different, 'in error': errors })
    .filter(([, count]) => count > 0)
    .map(([word, count]) => `${number(count)} ${word}`);
  return `${paint('yellow', '!')} The bucket was compared: ${found.join(', ')}; ${counted(repaired, 'asset')} asked for again.`;
}

/** Epoch milliseconds, from such or from a date. */
function timeOf(text: string): number {
  const time = /^\d+$/.test(text) ? Number(text) : Date.parse(text);
  if (Number.isNaN(time))
    throw new UsageError(`--since ${text}: expected a date such as 2026-01-31, or epoch milliseconds`);
  return time;
}
