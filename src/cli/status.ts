import { formatBytes, formatDuration } from '../units.ts';
import type { ApiClient, ConnectionSummary, Status } from './client.ts';
import { ago, fits, paint, print, printJson, table } from './output.ts';

/** What is connected, how far each is, rate and time left; with `watch` until interrupted. */
export async function status(api: ApiClient, options: { json?: boolean; watch?: boolean }): Promise<void> {
  for (;;) {
    const [totals, { connections }] = await Promise.all([api.status(), api.connections()]);
    const facts = { ...totals, connectionList: connections };
    // While it is watched, one line each time, for who reads lines.
    if (options.json && options.watch) print(JSON.stringify(facts));
    else if (options.json) printJson(facts);
    else {
      if (options.watch && process.stdout.isTTY) process.stdout.write('\u001b[2J\u001b[H');
      print(describe(totals, connections));
    }
    if (!options.watch) return;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

const colour = { active: 'green', paused: 'yellow', disconnected: 'red' } as const;

function describe(totals: Status, connections: ConnectionSummary[]): string {
  const { byState, total } = totals.assets;
  const lines = [
    `${paint('bold', `${byState.mirrored} of ${total}`)} assets mirrored, ${formatBytes(totals.bytes)}`,
    ['pending', 'transferring', 'processing', 'unavailable', 'failed', 'gone']
      .map((state) => ({ state, count: byState[state as keyof typeof byState] }))
      .filter(({ count }) => count > 0)
      .map(({ state, count }) => (state === 'failed' ? paint('red', `${count} failed`) : `${count} ${state}`))
      .join(', '),
    totals.outstanding.assets > 0
      ? `${formatBytes(totals.outstanding.bytes)} to go, ${formatBytes(totals.rate.bytesPerSecond)}/s, ${
          totals.timeLeft !== null
            ? `${formatDuration(totals.timeLeft * 1000)} left`
            : totals.rate.bytesPerSecond > 0
              ? 'a moment until the time left is known'
              : 'nothing moves at present'
        }`
      : '',
    totals.assets.leftOut > 0 ? `${totals.assets.leftOut} left out by the settings` : '',
    totals.outstanding.later > 0 ? paint('yellow', `${totals.outstanding.later} put off after an error`) : '',
    totals.bucket.ok ? '' : paint('red', `the bucket takes nothing, so everything waits: ${totals.bucket.reason}`),
    totals.queues === null ? paint('red', 'the queue does not answer') : '',
  ].filter(Boolean);
  if (connections.length === 0) {
    lines.push('', 'Nothing is connected. `asset-mirror connect-link` makes a link with which a user connects.');
    return lines.join('\n');
  }
  const rows = connections.map((connection) => {
    const counts = connection.counts.byState;
    const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
    return [
      connection.id,
      connection.user.email || connection.user.name,
      paint(colour[connection.status], connection.status),
      `${counts.mirrored}/${all}`,
      formatBytes(connection.bytes),
      String(counts.failed),
      ago(connection.lastSyncAt),
      connection.nextSyncAt === null ? '–' : ago(connection.nextSyncAt),
    ];
  });
  const wide = table(['CONNECTION', 'USER', 'STATUS', 'MIRRORED', 'BYTES', 'FAILED', 'LAST SYNC', 'NEXT'], rows);
  if (fits(wide)) lines.push('', wide);
  else {
    for (const [id, user, status, mirrored, bytes, failed, last, next] of rows) {
      lines.push('', `${paint('bold', id!)}  ${status}`, `  ${user}: ${mirrored} mirrored, ${bytes}, ${failed} failed`);
      lines.push(`  last sync ${last}, next ${next}`);
    }
  }
  for (const { id, pace } of connections) {
    const parts = [
      pace.parkedUntil ? `waits, and goes on ${ago(pace.parkedUntil)}` : '',
      pace.limit < pace.ceiling ? `slowed down to ${pace.limit} of ${pace.ceiling} at once` : '',
    ].filter(Boolean);
    if (parts.length > 0) lines.push(`${paint('yellow', '~')} ${id}: ${parts.join(', ')}`);
  }
  for (const { id, lastError } of connections) if (lastError) lines.push(`${paint('yellow', '!')} ${id}: ${lastError}`);
  return lines.join('\n');
}
