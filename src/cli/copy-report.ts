import { formatBytes, formatDuration } from '../floor/units.ts';
import { type Copying, type CopyReport, WrongSelection } from '../offline/restore.ts';
import { UsageError } from './failures.ts';
import { counted, number, paint } from './output.ts';
import { runReported } from './work-report.ts';

/**
 * Shows the progress of a restore or an export, and a summary. `doneOf`: the assets that are complete at the target. Returns how many
 * could not be copied. @throws UsageError
 */
export async function runCopy<Progress extends Copying>(
  work: (report: CopyReport<Progress>) => Promise<Progress>,
  options: {
    verb: string;
    /** The participle for the summary, such as `restored`. */
    past: string;
    initial: Progress;
    doneOf: (progress: Readonly<Progress>) => number;
    json?: boolean;
    stop: AbortSignal;
  },
): Promise<number> {
  const { verb, past, initial, doneOf, json = false, stop } = options;
  const title = (from: string, to: string) => `${paint('bold', verb)}  from ${from} to ${to}`;
  const { failed } = await runReported<Progress>(
    (report) => work({ ...report, start: (from, to) => report.start(title(from, to)) }),
    {
      ...{ json, stop, initial },
      summaryOf: (progress, end) => summaryOf(progress, { ...end, past, done: doneOf(progress) }),
      format: ` ${paint('cyan', '{bar}')} {percentage}%  {count}  {bytes}  {rate}`,
      facts: (progress, ms) => {
        const { total, failed, bytes } = progress;
        const left = Math.max(0, (total?.bytes ?? bytes) - bytes);
        return {
          done: bytes,
          of: total?.bytes ?? 0,
          count: `${number(doneOf(progress) + failed)} of ${counted(total?.assets ?? 0, 'asset')}`,
          bytes: formatBytes(bytes),
          rate:
            bytes > 0 && ms > 2000
              ? `${formatBytes((bytes * 1000) / ms)}/s, ${formatDuration((left * ms) / bytes)} left`
              : '',
        };
      },
    },
  ).catch(asUsage);
  return failed;
}

/** A wrong selection is a wrong use of the command line. */
export function asUsage(error: unknown): never {
  throw error instanceof WrongSelection ? new UsageError(error.message) : error;
}

function summaryOf(
  { present, failed, bytes }: Readonly<Copying>,
  { past, done, interrupted, ms }: { past: string; done: number; interrupted: boolean; ms: number },
): string {
  const lead = interrupted ? `${paint('yellow', 'Interrupted.')} ` : '';
  const found = present > 0 ? ` (${number(present)} there already)` : '';
  const tone = failed === 0 && !interrupted ? 'green' : 'yellow';
  const sum = `${counted(done, 'asset')} ${past}`;
  const lines = [`\n${lead}${paint(tone, paint('bold', sum))}${found}, ${formatBytes(bytes)} in ${formatDuration(ms)}`];
  if (failed > 0) lines.push(paint('red', `  ${counted(failed, 'asset')} failed`));
  if (interrupted) lines.push('Run it again to continue.');
  return lines.join('\n');
}
