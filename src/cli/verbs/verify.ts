import { setTimeout as sleep } from 'node:timers/promises';
import { formatBytes, formatDuration } from '../../floor/units.ts';
import type { ConnectionSummary, Verification } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { UsageError } from '../failures.ts';
import { findOptional } from '../find-connection.ts';
import { liveLine } from '../live.ts';
import { harmless, paint, print, printError, printJsonLine, progressBar, speed } from '../output.ts';
import { waitReporter, whyAssetsWait, whyConnectionWaits } from '../why-waiting.ts';

interface VerifyOptions {
  connection?: string;
  deep?: boolean;
  repair?: boolean;
  inventory?: boolean;
  ignoreForeign?: boolean;
  wait?: boolean;
  all?: boolean;
  json?: boolean;
}

const pollMs = 300;
const pageSize = 1000;

/**
 * Starts a verification and prints each finding as it is found, as text or as JSON, then a summary. With `wait`, waits for the
 * repairs and verifies once more. Returns the number of differences.
 */
export async function verify(api: ApiClient, options: VerifyOptions): Promise<number> {
  const { connection, repair, wait, json } = options;
  if (wait && !repair) throw new UsageError('--wait needs --repair');
  const connectionId = await findOptional(api, connection);
  const { sidecars } = (await api.status()).outstanding;
  const first = await follow(api, { ...options, connectionId });
  if (!wait || first.counts.repaired === 0) return first.differences;
  if (!json) print('\nWaiting for the repairs, then verifying once more.');
  await untilRepaired(api, connectionId, sidecars);
  return (await follow(api, { ...options, connectionId, repair: false })).differences;
}

/** Runs one verification to its end. */
async function follow(
  api: ApiClient,
  {
    connectionId,
    deep,
    repair,
    inventory,
    ignoreForeign,
    all,
    json,
  }: VerifyOptions & { connectionId?: string | undefined },
): Promise<Verification> {
  const { id } = await api.verify({ connectionId, deep, repair, inventory, ignoreForeign, all });
  const view = json ? jsonView() : textView();
  let after = 0;
  try {
    for (;;) {
      const run = await api.verification(id, { after, limit: pageSize });
      for (const line of run.lines) view.line(line);
      after = run.lines.at(-1)?.number ?? after;
      if (run.next !== null) continue;
      view.progress(run);
      if (run.status === 'failed') throw new Error(`the verification failed: ${run.error}`);
      if (run.status === 'done') {
        view.end(run);
        if (!json) print(paint('dim', `In the dashboard: ${await api.page(`/verify/${id}`)}`));
        return run;
      }
      await sleep(pollMs);
    }
  } finally {
    view.close();
  }
}

/**
 * Waits until the repaired assets are transferred, and the number of assets that wait for a sidecar is not higher than before.
 * It does not wait for assets that are retried later after an error.
 */
async function untilRepaired(api: ApiClient, connectionId: string | undefined, sidecarsBefore: number): Promise<void> {
  const reportWaits = waitReporter(printError);
  for (;;) {
    const status = await api.status();
    const { outstanding } = status;
    const connection = connectionId === undefined ? undefined : await api.connection(connectionId);
    const isTransferred = connection ? await hasNothingDue(api, connection) : outstanding.assets <= outstanding.later;
    if (isTransferred && outstanding.sidecars <= sidecarsBefore) return;
    const waiting = connection && whyConnectionWaits(connection);
    if (waiting) throw new Error(`stopped waiting: ${waiting}`);
    reportWaits(status, connection);
    await sleep(pollMs);
  }
}

/** Whether nothing of the connection is pending, or only assets that are tried again later. */
async function hasNothingDue(api: ApiClient, connection: ConnectionSummary): Promise<boolean> {
  const { pending, transferring } = connection.counts.byState;
  return pending + transferring === 0 || (await whyAssetsWait(api, connection)) !== undefined;
}

type Line = Verification['lines'][number];

interface View {
  line(line: Line): void;
  progress(run: Verification): void;
  end(run: Verification): void;
  close(): void;
}

/** One object each line, the summary last. */
function jsonView(): View {
  return {
    line: ({ number: _, ...line }) => printJsonLine(line),
    progress: () => {},
    end: ({ lines: _, next: __, ...summary }) => printJsonLine({ summary }),
    close: () => {},
  };
}

/** On a terminal it shows the progress, too. */
function textView(): View {
  const live = liveLine({ silent: !process.stdout.isTTY });
  /** The progress at the first poll, for the rate. */
  let first: { done: number; at: number } | undefined;
  return {
    line: (line) => live.print(describe(line)),
    progress(run) {
      const { done, total } = run.progress;
      if (run.phase === 'objects') first ??= { done, at: performance.now() };
      const rate = first
        ? speed({ done: done - first.done, left: total - done, ms: performance.now() - first.at })
        : '';
      const note = [noteOf(run), run.phase === 'objects' && rate].filter(Boolean).join(', ');
      live.show(`${progressBar(done, total)}  ${note}`);
    },
    end: (run) => live.print(summarize(run)),
    close: live.end,
  };
}

const phaseNotes = {
  library: 'listing the library',
  assets: 'checking assets that are new or not mirrored',
  versions: 'checking superseded files',
  repair: 'starting repairs',
  inventory: 'writing the inventory',
  end: '',
};

function noteOf({ status, phase, progress, counts, error }: Verification): string {
  if (error) return `waiting: ${harmless(error)}`;
  if (status === 'waiting') return 'waiting for a worker';
  if (phase === null) return '';
  if (phase !== 'objects') return phaseNotes[phase];
  const read = counts.bytesRead > 0 ? `, ${formatBytes(counts.bytesRead)} read` : '';
  return `${progress.done}/${progress.total} assets${read}`;
}

const colours = { '=': 'green', '-': 'red', '+': 'yellow', '*': 'red', '!': 'red' } as const;

/** `- acme/_/a1/film.mp4`, and the explanation below it. */
function describe({ mark, key, assetId, text, difference }: Line): string {
  const sign = paint(mark === '-' && !difference ? 'dim' : colours[mark], mark);
  const what = key ?? assetId;
  if (what === null || text === null) return `${sign} ${harmless(what ?? text ?? '')}`;
  return `${sign} ${harmless(what)}\n    ${paint('dim', harmless(text))}`;
}

function summarize(run: Verification): string {
  const { counts, differences } = run;
  const parts = [
    [counts.missing, 'missing', 'red'],
    [counts.different, 'different', 'red'],
    [counts.errors, 'errors', 'red'],
    [counts.foreign, 'in no record', 'yellow'],
  ] as const;
  const ms = Date.parse(run.finishedAt ?? '') - Date.parse(run.startedAt ?? '');
  const found = parts.filter(([count]) => count > 0).map(([count, word, colour]) => paint(colour, `${count} ${word}`));
  const objects = [paint('bold', `${counts.same} as expected`), ...found].join(', ');
  const how = run.deep ? `every byte (${formatBytes(counts.bytesRead)})` : 'sizes (and ETags, if the store has them)';
  const lines = [`Objects: ${objects}`, `Compared ${how} in ${formatDuration(ms)}.`];
  if (run.lines.length + differences + counts.absent + counts.skipped > 0) lines.unshift('');
  if (counts.archived > 0) lines.push(`Archived objects, of which only the length was compared: ${counts.archived}`);
  if (counts.absent > 0) lines.push(`Assets without a file in the library (yet): ${counts.absent}`);
  if (counts.skipped > 0) lines.push(`Assets skipped by filters: ${counts.skipped}`);
  if (counts.moving > 0)
    lines.push(`Objects that changed during the verification (run it again for them): ${counts.moving}`);
  if (run.repair && counts.repaired > 0) {
    lines.push(`Assets being repaired: ${counts.repaired}. Watch with \`asset-mirror status --watch\`.`);
  }
  if (!run.repair && counts.missing + counts.different > 0) {
    lines.push('Repair missing and different objects with `asset-mirror verify --repair`.');
  }
  if (differences === 0) {
    lines.push(
      paint('green', counts.moving === 0 ? 'No differences.' : 'No differences, except for the objects that changed.'),
    );
  }
  return lines.join('\n');
}
