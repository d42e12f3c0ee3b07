import { createWriteStream } from 'node:fs';
import { resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { type ExportRequest, wrongTemplate } from '../../offline/export.ts';
import type { CopyProgress, CopyReport } from '../../offline/restore.ts';
import { type AssetFilterOptions, filterOf } from '../asset-filters.ts';
import { asUsage, runCopy } from '../copy-report.ts';
import { UsageError } from '../failures.ts';
import { placeOf } from '../options.ts';

export interface ExportVerbOptions extends AssetFilterOptions {
  json?: boolean;
  to?: string;
  names: string;
  sidecars?: boolean;
  overwrite?: boolean;
  manifest?: 'csv' | 'rclone';
}

/** The export that the options ask for. @throws UsageError */
export function requestOf(options: ExportVerbOptions): ExportRequest {
  const { to: place, overwrite = false } = options;
  if (place === undefined) throw new UsageError('Name a target with --to, or use --manifest.');
  return { ...selectionOf(options), overwrite, to: targetOf(place) };
}

/** The assets that the options select, and the names of their files. @throws UsageError */
export function selectionOf(options: ExportVerbOptions): Pick<ExportRequest, 'filter' | 'names' | 'sidecars'> {
  const { names, sidecars = false } = options;
  const wrong = wrongTemplate(names);
  if (wrong) throw new UsageError(`--names: ${wrong}`);
  return { filter: filterOf(options), names, sidecars };
}

function targetOf(place: string): ExportRequest['to'] {
  const target = placeOf(place);
  if (!target) throw new UsageError('--to expects a directory, a .zip file or s3://bucket/prefix.');
  // `file://` is for directories.
  const isZip = target.kind === 'directory' && /^(?!file:).*\.zip$/is.test(place);
  return isZip ? { kind: 'zip', path: target.path } : target;
}

/** Returns how many assets could not be exported. @throws UsageError */
export const exportAssets = (
  work: (report: CopyReport) => Promise<CopyProgress>,
  options: { json?: boolean; stop: AbortSignal },
): Promise<number> => runCopy(work, { ...options, verb: 'export', past: 'exported' }).catch(filterAsUsage);

/** Writes the list of what would be exported. An existing file is replaced only with `overwrite`. @throws UsageError */
export async function writeManifest(
  lines: AsyncIterable<string>,
  { to, overwrite = false }: { to?: string; overwrite?: boolean },
): Promise<void> {
  const target = to === undefined ? process.stdout : createWriteStream(resolve(to), { flags: overwrite ? 'w' : 'wx' });
  await pipeline(Readable.from(lines), target, { end: to !== undefined }).catch((error) => {
    if (error.code === 'EEXIST') throw new UsageError(`${to} exists already. Use --overwrite to replace it.`);
    filterAsUsage(error);
  });
}

/** A wrong filter is a wrong use of the command line, too. */
function filterAsUsage(error: unknown): never {
  if (error instanceof z.ZodError) {
    const [{ path, message }] = error.issues as [z.core.$ZodIssue];
    throw new UsageError(`${path.join('.')}: ${message}`);
  }
  return asUsage(error);
}
