import { setTimeout as sleep } from 'node:timers/promises';
import { formatBytes, formatDuration } from '../../floor/units.ts';
import type { ConnectionSummary, Status } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { liveScreen } from '../live.ts';
import { ago, counted, harmless, number, paint, print, printJson, printJsonLine, progressBar } from '../output.ts';
import { connectionTable, troubles } from './connections.ts';

const watchMs = 1000;
/** Maximum connections shown; `asset-mirror connections` lists all. */
const mostShown = 20;

/** Shows totals, progress of each connection, rate and time left; with `watch` until interrupted. */
export async function status(api: ApiClient, options: { json?: boolean; watch?: boolean }): Promise<void> {
  const screen = options.watch && !options.json && process.stdout.isTTY ? liveScreen() : undefined;
  for (;;) {
    const [totals, connections] = await Promise.all([
      api.status(),
      options.json ? api.allConnections() : api.connections({ limit: mostShown }).then((page) => page.connections),
    ]);
    const facts = { ...totals, connectionList: connections };
    if (options.json && options.watch) printJsonLine(facts);
    else if (options.json) printJson(facts);
    else if (screen) screen.show(describe(totals, connections, true));
    else print(describe(totals, connections, false));
    if (!options.watch) return;
    await sleep(watchMs);
  }
}

function describe(totals: Status, connections: ConnectionSummary[], watched: boolean): string {
  const { byState, expected, skipped } = totals.assets;
  const lines = [
    ...(watched ? [progressOf(totals)] : []),
    `${paint('bold', `${number(byState.mirrored)} of ${number(expected)}`)} assets mirrored, ${formatBytes(totals.bytes)}`,
    (['pending', 'transferring', 'processing', 'unavailable', 'failed', 'gone'] as const)
      .map((state) => ({ state, count: byState[state] }))
      .filter(({ count }) => count > 0)
      .map(({ state, count }) => paintIf(state === 'failed', 'red', `${number(count)} ${state}`))
      .concat(skipped > 0 ? [`${number(skipped)} skipped by filters`] : [])
      .join(', '),
    totals.versions.count > 0
      ? `${counted(totals.versions.count, 'superseded file')} kept, ${formatBytes(totals.versions.bytes)}`
      : '',
    leftOf(totals),
    totals.outstanding.later > 0
      ? paint('yellow', `${number(totals.outstanding.later)} waiting to retry after an error`)
      : '',
    totals.outstanding.sidecars > 0
      ? `${number(totals.outstanding.sidecars)} mirrored, waiting for a transcript or thumbnail`
      : '',
    watched && totals.syncs.running + totals.syncs.waiting > 0
      ? `${number(totals.syncs.running)} syncs running, ${number(totals.syncs.waiting)} waiting`
      : '',
    totals.removals.assets > 0
      ? `${number(totals.removals.assets)} will be removed from the bucket in the next 7 days; see \`asset-mirror removals\``
      : '',
    totals.removals.heldCompanies > 0
      ? paint(
          'yellow',
          `companies with too many removals at once, which wait until you accept them: ${number(totals.removals.heldCompanies)}; see \`asset-mirror removals\``,
        )
      : '',
    totals.transcriptSearch && totals.transcriptSearch.waiting > 0
      ? `${counted(totals.transcriptSearch.waiting, 'transcript')} not in the search yet`
      : '',
    scrubLine(totals.scrub),
    totals.bucket.ok
      ? ''
      : paint('red', `bucket unavailable, all assets wait: ${harmless(totals.bucket.reason ?? '')}`),
    totals.queues === null ? paint('red', 'queue: no answer') : '',
  ].filter(Boolean);
  const { active, paused, disconnected, troubled } = totals.connections;
  const all = active + paused + disconnected;
  if (troubled > 0)
    lines.push(paint('red', `with an error, a held company or a late sync: ${counted(troubled, 'connection')}`));
  if (disconnected > 0) lines.push(paint('red', `${counted(disconnected, 'connection')} disconnected`));
  if (all === 0) {
    lines.push('', 'No connections. Create a link for a user with `asset-mirror connect-link`.');
    return lines.join('\n');
  }
  lines.push('', connectionTable(connections));
  if (all > connections.length) {
    lines.push(
      paint('dim', `and ${number(all - connections.length)} more; list all with \`asset-mirror connections\``),
    );
  }
  const trouble = troubles(connections);
  return [...lines, ...(trouble.length > 0 ? ['', ...trouble] : [])].join('\n');
}

/** The oldest verification, and whether the scrub is on time. */
export function scrubLine({ cycle, oldest, onTime, unverifiable }: Status['scrub']): string {
  if (oldest === null) return '';
  const verified = `oldest verification ${ago(oldest)}`;
  const not = unverifiable > 0 ? `, ${number(unverifiable)} cannot be verified` : '';
  if (cycle === null) return `${verified}${not}; the scrub is off`;
  return onTime ? `${verified}${not}` : paint('yellow', `${verified}${not}; the scrub is late`);
}

function progressOf({ assets, outstanding }: Status): string {
  const { expected } = assets;
  const done = Math.max(0, expected - outstanding.assets);
  return progressBar(done, expected, 32);
}

function leftOf({ outstanding, rate, timeLeft }: Status): string {
  if (outstanding.assets === 0) return '';
  const speed = `${formatBytes(rate.bytesPerSecond)}/s`;
  const left =
    timeLeft !== null
      ? `${formatDuration(timeLeft * 1000)} left`
      : rate.bytesPerSecond > 0
        ? 'calculating the time left'
        : 'no transfers now';
  return `${formatBytes(outstanding.bytes)} to transfer, ${speed}, ${left}`;
}

const paintIf = (condition: boolean, style: Parameters<typeof paint>[0], text: string) =>
  condition ? paint(style, text) : text;
