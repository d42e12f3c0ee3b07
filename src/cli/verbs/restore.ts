import { resolve } from 'node:path';
import { parseStorageUrl } from '../../config/parsers.ts';
import { type RestoreReport, type RestoreRequest, type Restoring, WrongSelection } from '../../restore.ts';
import { formatBytes, formatDuration } from '../../units.ts';
import { UsageError } from '../failures.ts';
import { counted, number, paint } from '../output.ts';
import { runReported } from '../work-report.ts';

export interface RestoreOptions {
  json?: boolean;
  to: string;
  version?: string;
  asOf?: Date;
  project?: string;
  company?: string;
  connection?: string;
  overwrite?: boolean;
}

/** @throws UsageError */
export function requestOf(assetIds: string[], options: RestoreOptions): RestoreRequest {
  const { version, asOf, project: projectId, company: companyId, connection } = options;
  const named = assetIds.length > 0;
  if (!named && !(projectId ?? companyId ?? connection ?? asOf)) {
    throw new UsageError('Name assets, or select some with --project, --company, --connection or --as-of.');
  }
  if (version !== undefined && (assetIds.length !== 1 || asOf)) {
    throw new UsageError('--version needs exactly one asset, and excludes --as-of.');
  }
  const target = /^(s3|file):\/\//.test(options.to)
    ? parseStorageUrl(options.to)
    : { kind: 'directory' as const, path: resolve(options.to) };
  if (!target) throw new UsageError('--to expects a directory or s3://bucket/prefix.');
  return {
    to: target,
    overwrite: options.overwrite === true,
    assetIds: named ? assetIds : undefined,
    ...{ companyId, projectId, connection, version, asOf },
  };
}

/** Shows the progress of a restore and a summary. Returns how many assets could not be restored. @throws UsageError */
export async function restore(
  work: (report: RestoreReport) => Promise<Restoring>,
  { json = false, stop }: { json?: boolean; stop: AbortSignal },
): Promise<number> {
  const first = { total: undefined, restored: 0, bytes: 0, present: 0, failed: 0 };
  const title = (from: string, to: string) => `${paint('bold', 'restore')}  from ${from} to ${to}`;
  const { failed } = await runReported<Restoring>(
    (report) => work({ ...report, start: (from, to) => report.start(title(from, to)) }),
    {
      ...{ json, stop, first, summaryOf },
      format: ` ${paint('cyan', '{bar}')} {percentage}%  {count}  {bytes}  {rate}`,
      facts: ({ total, restored, failed, bytes }, ms) => {
        const left = Math.max(0, (total?.bytes ?? bytes) - bytes);
        return {
          done: bytes,
          of: total?.bytes ?? 0,
          count: `${number(restored + failed)} of ${counted(total?.assets ?? 0, 'asset')}`,
          bytes: formatBytes(bytes),
          rate:
            bytes > 0 && ms > 2000
              ? `${formatBytes((bytes * 1000) / ms)}/s, ${formatDuration((left * ms) / bytes)} left`
              : '',
        };
      },
    },
  ).catch((error) => {
    throw error instanceof WrongSelection ? new UsageError(error.message) : error;
  });
  return failed;
}

function summaryOf(so: Readonly<Restoring>, { interrupted, ms }: { interrupted: boolean; ms: number }): string {
  const { restored, present, failed, bytes } = so;
  const lead = interrupted ? `${paint('yellow', 'Interrupted.')} ` : '';
  const found = present > 0 ? ` (${present} there already)` : '';
  const tone = failed === 0 && !interrupted ? 'green' : 'yellow';
  const sum = `${counted(restored, 'asset')} restored`;
  const lines = [`\n${lead}${paint(tone, paint('bold', sum))}${found}, ${formatBytes(bytes)} in ${formatDuration(ms)}`];
  if (failed > 0) lines.push(paint('red', `  ${counted(failed, 'asset')} failed`));
  if (interrupted) lines.push('Run it again to continue.');
  return lines.join('\n');
}
