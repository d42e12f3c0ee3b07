import { formatBytes, formatDuration } from '../../floor/units.ts';
import { nothingRebuilt, type RebuildProgress, type RebuildReport } from '../../offline/rebuild.ts';
import { counted, paint, progressBar, speed } from '../output.ts';
import { runReported } from '../work-report.ts';

/** Shows the progress of a rebuild and a summary. Returns whether all records could be used as they are, and there was one. */
export async function rebuild(
  work: (report: RebuildReport) => Promise<RebuildProgress>,
  { json = false, stop }: { json?: boolean; stop: AbortSignal },
): Promise<boolean> {
  const title = (storage: string) => `${paint('bold', 'rebuild')}  the database, from the records in ${storage}`;
  const { restored, known, pending, skipped } = await runReported<RebuildProgress>(
    (report) => work({ ...report, start: (storage) => report.start(title(storage)) }),
    {
      json,
      stop,
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
  return pending + skipped === 0 && restored + known > 0;
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
