import { formatBytes, formatDuration } from '../../floor/units.ts';
import { rebuildFrom } from '../../offline/rebuild.ts';
import { nothingRebuilt, type RebuildProgress } from '../../verify/rebuild/rebuild.ts';
import { counted, paint, progressBar, speed } from '../output.ts';
import type { Verbs } from '../verb.ts';
import { runReported } from '../work-report.ts';

/** Shows the progress of a rebuild and a summary. Returns 1 if there is no record, or one could not be used as it is. */
export async function rebuild(offline: Verbs['offline'], { json = false }: { json?: boolean }): Promise<number> {
  const { config, log } = await offline();
  const title = (storage: string) => `${paint('bold', 'rebuild')}  the database, from the records in ${storage}`;
  const { restored, known, pending, skipped } = await runReported<RebuildProgress>(
    ({ start, ...report }, stop) =>
      rebuildFrom(config, { log, stop, report: { ...report, start: (storage) => start(title(storage)) } }),
    {
      json,
      initial: nothingRebuilt,
      summaryOf,
      lineOf: ({ objects, total, restored, known, bytes }, ms) =>
        [
          total ? progressBar(objects, total) : 'counting',
          `${restored + known} assets`,
          formatBytes(bytes).padStart(9),
          speed({ done: objects, left: (total ?? objects) - objects, ms }),
        ].join('  '),
    },
  );
  return pending + skipped === 0 && restored + known > 0 ? 0 : 1;
}

function summaryOf(
  progress: Readonly<RebuildProgress>,
  { interrupted, ms }: { interrupted: boolean; ms: number },
): string {
  const well = progress.pending + progress.skipped === 0 && !interrupted;
  const sum = paint(well ? 'green' : 'yellow', paint('bold', `${counted(progress.restored, 'asset')} restored`));
  const found = progress.known > 0 ? ` (${progress.known} already known)` : '';
  const lines = [`${sum}${found}, ${formatBytes(progress.bytes)} in the bucket, in ${formatDuration(ms)}`];
  if (progress.versions > 0) lines.push(`  ${counted(progress.versions, 'superseded file')} restored`);
  if (progress.pending > 0) lines.push(`  ${progress.pending} differ from their record and are fetched again`);
  if (progress.skipped > 0)
    lines.push(
      `  ${progress.skipped} record files ignored: not a valid record, or older than another record of the same asset`,
    );
  if (interrupted) lines.push('Run it again to continue.');
  else if (progress.restored + progress.known > 0) {
    lines.push('Users must connect again (`asset-mirror connect-link`). Restored assets are not downloaded again.');
  } else lines.push('No records found. Check STORAGE_URL and its prefix.');
  return lines.join('\n');
}
