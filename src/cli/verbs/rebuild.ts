import { Presets, SingleBar } from 'cli-progress';
import type { Rebuilding, RebuildReport } from '../../rebuild.ts';
import { formatBytes, formatDuration } from '../../units.ts';
import { harmless, overwrite, paint, print, printJson, speed } from '../output.ts';

/** So many sentences are kept for JSON. */
const mostTold = 1000;

/** Shows how the records are made again, and sums up. Returns how much there is that a person should look at. */
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
      print(`${paint('bold', 'rebuild')}  the records, from ${storage}`);
      if (shown) bar.start(1, 0, facts());
    },
    tell(line) {
      if (json && told.length < mostTold) told.push(line);
      else toldMore++;
      if (json) return;
      // Above the bar, which is drawn again below it.
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
    const found = so.known > 0 ? ` (${so.known} known already)` : '';
    print(
      `\n${lead}${paint(well ? 'green' : 'yellow', paint('bold', sum))}${found}, ${formatBytes(so.bytes)} in the bucket, in ${formatDuration(ms)}`,
    );
    if (so.pending > 0) print(`  ${so.pending} not as recorded, so fetched again`);
    if (so.skipped > 0) print(`  ${so.skipped} with the name of a record, but none or an older one: left alone`);
    if (interrupted) print('Run it again: it goes on with what is missing.');
    else if (so.restored + so.known > 0) {
      print('Users connect as before (`asset-mirror connect-link`); what is here is not downloaded again.');
    } else print('There is no record in it. Is STORAGE_URL right, with its prefix?');
  }
  return so.pending + so.skipped;
}
