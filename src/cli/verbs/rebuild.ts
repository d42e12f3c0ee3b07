import { Presets, SingleBar } from 'cli-progress';
import type { Rebuilding, RebuildReport } from '../../rebuild.ts';
import { formatBytes, formatDuration } from '../../units.ts';
import { harmless, overwrite, paint, print, printJson, speed } from '../output.ts';

/** Maximum problems kept for JSON. */
const mostProblems = 1000;

/** Shows the progress of a rebuild and a summary. Returns how many records could not be used as they are. */
export async function rebuild(
  work: (report: RebuildReport) => Promise<Rebuilding>,
  options: { json?: boolean; stop: AbortSignal },
): Promise<number> {
  const started = performance.now();
  const json = options.json === true;
  const problems: string[] = [];
  let moreProblems = 0;
  let progress: Rebuilding = { objects: 0, of: undefined, restored: 0, bytes: 0, known: 0, pending: 0, skipped: 0 };
  const bar = new SingleBar(
    {
      format: ` ${paint('cyan', '{bar}')} {percent}  {count}  {bytes}  {rate}`,
      hideCursor: true,
      barsize: 16,
      linewrap: false,
    },
    Presets.rect,
  );
  const shown = !json && process.stdout.isTTY === true;
  const facts = () => ({
    percent: progress.of ? `${Math.floor((100 * progress.objects) / progress.of)}%`.padStart(4) : 'counting',
    count: `${progress.restored + progress.known} assets`,
    bytes: formatBytes(progress.bytes).padStart(9),
    rate: speed({
      done: progress.objects,
      left: (progress.of ?? progress.objects) - progress.objects,
      ms: performance.now() - started,
    }),
  });
  const report: RebuildReport = {
    start(storage) {
      if (json) return;
      print(`${paint('bold', 'rebuild')}  the database, from the records in ${storage}`);
      if (shown) bar.start(1, 0, facts());
    },
    problem(line) {
      if (json && problems.length < mostProblems) problems.push(line);
      else moreProblems++;
      if (json) return;
      if (shown) overwrite(process.stdout);
      print(`  ${paint('yellow', '!')} ${harmless(line)}`);
    },
    progress(now) {
      progress = now;
      if (!shown) return;
      bar.setTotal(progress.of ?? Math.max(progress.objects * 2, 1));
      bar.update(progress.objects, facts());
    },
  };
  let interrupted = false;
  try {
    progress = await work(report);
  } catch (error) {
    if (!options.stop.aborted) throw error;
    interrupted = true;
    process.exitCode = 130;
  } finally {
    if (shown) bar.stop();
  }
  const ms = performance.now() - started;
  if (json) {
    printJson({
      ...(interrupted && { interrupted }),
      ...progress,
      of: progress.of ?? null,
      seconds: ms / 1000,
      problems,
      moreProblems,
    });
  } else {
    const lead = interrupted ? `${paint('yellow', 'Interrupted.')} ` : '';
    const sum = `${progress.restored} ${progress.restored === 1 ? 'asset' : 'assets'} restored`;
    const well = progress.pending + progress.skipped === 0 && !interrupted;
    const found = progress.known > 0 ? ` (${progress.known} already known)` : '';
    print(
      `\n${lead}${paint(well ? 'green' : 'yellow', paint('bold', sum))}${found}, ${formatBytes(progress.bytes)} in the bucket, in ${formatDuration(ms)}`,
    );
    if (progress.pending > 0) print(`  ${progress.pending} differ from their record and are fetched again`);
    if (progress.skipped > 0)
      print(`  ${progress.skipped} record files ignored: not a valid record, or an older version`);
    if (interrupted) print('Run it again to continue.');
    else if (progress.restored + progress.known > 0) {
      print('Users must connect again (`asset-mirror connect-link`). Restored assets are not downloaded again.');
    } else print('No records found. Check STORAGE_URL and its prefix.');
  }
  return progress.pending + progress.skipped;
}
