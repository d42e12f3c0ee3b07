import { formatBytes, formatDuration } from '../floor/units.ts';
import type { CopyReport } from '../offline/restore.ts';
import { type CopyProgress, nothingCopied } from '../verify/copy/copy-each.ts';
import { WrongSelection } from '../verify/copy/select-copies.ts';
import { UsageError } from './failures.ts';
import { counted, number, paint, progressBar } from './output.ts';
import { runReported } from './work-report.ts';

/** Shows the progress of a restore or an export, and a summary. Returns how many assets could not be copied. @throws UsageError */
export async function runCopy(
  work: (report: CopyReport, stop: AbortSignal) => Promise<CopyProgress>,
  options: {
    verb: string;
    /** The participle for the summary, such as `restored`. */
    past: string;
    json?: boolean | undefined;
  },
): Promise<number> {
  const { verb, past, json = false } = options;
  const title = (from: string, to: string) => `${paint('bold', verb)}  from ${from} to ${to}`;
  const { failed } = await runReported<CopyProgress>(
    ({ start, ...report }, stop) => work({ ...report, start: (from, to) => start(title(from, to)) }, stop),
    {
      json,
      initial: nothingCopied,
      summaryOf: (progress, end) => summaryOf(progress, { ...end, past }),
      lineOf,
    },
  ).catch(asUsage);
  return failed;
}

function lineOf({ total, copied, failed, bytes }: Readonly<CopyProgress>, ms: number): string {
  const left = Math.max(0, (total?.bytes ?? bytes) - bytes);
  return [
    progressBar(bytes, total?.bytes ?? 0),
    `${number(copied + failed)} of ${counted(total?.assets ?? 0, 'asset')}`,
    formatBytes(bytes),
    bytes > 0 && ms > 2000 ? `${formatBytes((bytes * 1000) / ms)}/s, ${formatDuration((left * ms) / bytes)} left` : '',
  ].join('  ');
}

/** A wrong selection is a wrong use of the command line. */
export function asUsage(error: unknown): never {
  throw error instanceof WrongSelection ? new UsageError(error.message) : error;
}

function summaryOf(
  { copied, present, failed, bytes }: Readonly<CopyProgress>,
  { past, interrupted, ms }: { past: string; interrupted: boolean; ms: number },
): string {
  const found = present > 0 ? ` (${number(present)} there already)` : '';
  const tone = failed === 0 && !interrupted ? 'green' : 'yellow';
  const sum = `${counted(copied, 'asset')} ${past}`;
  const lines = [`${paint(tone, paint('bold', sum))}${found}, ${formatBytes(bytes)} in ${formatDuration(ms)}`];
  if (failed > 0) lines.push(paint('red', `  ${counted(failed, 'asset')} failed`));
  if (interrupted) lines.push('Run it again to continue.');
  return lines.join('\n');
}
