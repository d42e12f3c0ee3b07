import { createWriteStream } from 'node:fs';
import { resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { parseStorageUrl } from '../../config/parsers.ts';
import { type Exporting, type ExportReport, type ExportRequest, WrongSelection, wrongTemplate } from '../../export.ts';
import { formatBytes, formatDuration } from '../../units.ts';
import { type AssetFilterOptions, filterOf } from '../asset-filters.ts';
import { UsageError } from '../failures.ts';
import { counted, number, paint } from '../output.ts';
import { runReported } from '../work-report.ts';

export interface ExportVerbOptions extends AssetFilterOptions {
  json?: boolean;
  to?: string;
  names: string;
  sidecars?: boolean;
  overwrite?: boolean;
  manifest?: 'csv' | 'rclone';
}

/** What an export is to do. @throws UsageError */
export function requestOf(options: ExportVerbOptions): ExportRequest {
  const { to: place, overwrite = false } = options;
  if (place === undefined) throw new UsageError('Name a target with --to, or use --manifest.');
  return { ...selectionOf(options), overwrite, to: targetOf(place) };
}

/** Which assets, and the names of their files. @throws UsageError */
export function selectionOf(options: ExportVerbOptions): Pick<ExportRequest, 'filter' | 'names' | 'sidecars'> {
  const { names, sidecars = false } = options;
  const wrong = wrongTemplate(names);
  if (wrong) throw new UsageError(`--names: ${wrong}`);
  return { filter: filterOf(options), names, sidecars };
}

function targetOf(place: string): ExportRequest['to'] {
  if (!/^(s3|file):\/\//.test(place)) {
    const path = resolve(place);
    return /\.zip$/i.test(place) ? { kind: 'zip', path } : { kind: 'directory', path };
  }
  const target = parseStorageUrl(place);
  if (!target) throw new UsageError('--to expects a directory, a .zip file or s3://bucket/prefix.');
  return target;
}

/** Shows the progress of an export and a summary. Returns how many assets could not be exported. @throws UsageError */
export async function exportAssets(
  work: (report: ExportReport) => Promise<Exporting>,
  { json = false, stop }: { json?: boolean; stop: AbortSignal },
): Promise<number> {
  const first = { total: undefined, exported: 0, bytes: 0, present: 0, failed: 0 };
  const title = (from: string, to: string) => `${paint('bold', 'export')}  from ${from} to ${to}`;
  const { failed } = await runReported<Exporting>(
    (report) => work({ ...report, start: (from, to) => report.start(title(from, to)) }),
    {
      ...{ json, stop, first, summaryOf },
      format: ` ${paint('cyan', '{bar}')} {percentage}%  {count}  {bytes}  {rate}`,
      facts: ({ total, exported, failed, bytes }, ms) => ({
        done: bytes,
        of: total?.bytes ?? 0,
        count: `${number(exported + failed)} of ${counted(total?.assets ?? 0, 'asset')}`,
        bytes: formatBytes(bytes),
        rate: bytes > 0 && ms > 2000 ? `${formatBytes((bytes * 1000) / ms)}/s` : '',
      }),
    },
  ).catch(asUsage);
  return failed;
}

/** Writes the list of what would be exported. @throws UsageError */
export async function writeManifest(lines: AsyncIterable<string>, to: string | undefined): Promise<void> {
  const target = to === undefined ? process.stdout : createWriteStream(resolve(to));
  await pipeline(Readable.from(lines), target, { end: to !== undefined }).catch(asUsage);
}

function asUsage(error: unknown): never {
  if (error instanceof WrongSelection) throw new UsageError(error.message);
  if (error instanceof z.ZodError) {
    const [{ path, message }] = error.issues as [z.core.$ZodIssue];
    throw new UsageError(`${path.join('.')}: ${message}`);
  }
  throw error;
}

function summaryOf(so: Readonly<Exporting>, { interrupted, ms }: { interrupted: boolean; ms: number }): string {
  const { exported, present, failed, bytes } = so;
  const lead = interrupted ? `${paint('yellow', 'Interrupted.')} ` : '';
  const found = present > 0 ? ` (${number(present)} there already)` : '';
  const tone = failed === 0 && !interrupted ? 'green' : 'yellow';
  const sum = `${counted(exported, 'asset')} exported`;
  const lines = [`\n${lead}${paint(tone, paint('bold', sum))}${found}, ${formatBytes(bytes)} in ${formatDuration(ms)}`];
  if (failed > 0) lines.push(paint('red', `  ${counted(failed, 'asset')} not exported`));
  if (interrupted) lines.push('Run it again to continue.');
  return lines.join('\n');
}
