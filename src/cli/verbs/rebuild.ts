import { Presets, SingleBar } from 'cli-progress';
import type { Rebuilding, RebuildReport } from '../../rebuild.ts';
import { formatBytes, formatDuration } from '../../units.ts';
import { harmless, overwrite, paint, print, printJson, speed } from '../output.ts';

/** Maximum problems kept for JSON. */
const mostTold = 1000;

/** Shows the progress of a rebuild and a summary. Returns how many records could not be used as they are. */
export async function rebuild(
  work: (report: RebuildReport) => Promise<Rebuilding>,
  options: { json?: boolean; stop: AbortSignal },
): Promise<number> {
  const started = performance.now();
  const json = options.json === true;
  const told: string[] = [];
  let toldMore = 0;
  let so: Rebuilding = { objects: 0, of: undefined, restored: 0, bytes: 0, known: 0, pending: 0, skipped: 0 };
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
    percent: so.of ? `${Math.floor((100 * so.objects) / so.of)}%`.padStart(4) : 'counting',
    count: `${so.restored + so.known} assets`,
    bytes: formatBytes(so.bytes).padStart(9),
    rate: speed({ done: so.objects, left: (so.of ?? so.objects) - so.objects, ms: performance.now() - started }),
  });
  const report: RebuildReport = {
    start(storage) {
      if (json) return;
      print(`${paint('bold', 'rebuild')}  the database, from the records in ${storage}`);
      if (shown) bar.start(1, 0, facts());
    },
    tell(line) {
      if (json && told.length < mostTold) told.push(line);
      else toldMore++;
      if (json) return;
      if (shown) overwrite(process.stdout);
      print(`  ${paint('yellow', '!')} ${harmless(line)}`);
    },
    progress(now) {
      so = now;
      if (!shown) return;
      bar.setTotal(so.of ?? Math.max(so.objects * 2, 1));
      bar.update(so.objects, facts());
    },
  };
  let interrupted = false;
  try {
    so = await work(report);
  } catch (error) {
    if (!options.stop.aborted) throw error;
    interrupted = true;
    process.exitCode = 130;
  } finally {
    if (shown) bar.stop();
  }
  const ms = performance.now() - started;
  if (json) {
    printJson({ ...(interrupted && { interrupted }), ...so, of: so.of ?? null, seconds: ms / 1000, told, toldMore });
  } else {
    const lead = interrupted ? `${paint('yellow', 'Interrupted.')} ` : '';
    const sum = `${so.restored} ${so.restored === 1 ? 'asset' : 'assets'} restored`;
    const well = so.pending + so.skipped === 0 && !interrupted;
    const found = so.known > 0 ? ` (${so.known} already known)` : '';
    print(
      `\n${lead}${paint(well ? 'green' : 'yellow', paint('bold', sum))}${found}, ${formatBytes(so.bytes)} in the bucket, in ${formatDuration(ms)}`,
    );
    if (so.pending > 0) print(`  ${so.pending} differ from their record and are fetched again`);
    if (so.skipped > 0) print(`  ${so.skipped} record files ignored: not a valid record, or an older version`);
    if (interrupted) print('Run it again to continue.');
    else if (so.restored + so.known > 0) {
      print('Users must connect again (`asset-mirror connect-link`). Restored assets are not downloaded again.');
    } else print('No records found. Check STORAGE_URL and its prefix.');
  }
  return so.pending + so.skipped;
}
