import { createWriteStream } from 'node:fs';
import { resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { type ExportRequest, exportList, exportTo } from '../../offline/export.ts';
import { wrongTemplate } from '../../verify/export/export-names.ts';
import { type AssetFilterOptions, filterOf } from '../asset-filters.ts';
import { asUsage, runCopy } from '../copy-report.ts';
import { UsageError } from '../failures.ts';
import { placeOf } from '../options.ts';
import { harmless, printError } from '../output.ts';
import { setExitCode, type Verbs } from '../verb.ts';

interface ExportOptions extends AssetFilterOptions {
  json?: boolean;
  to?: string;
  names: string;
  sidecars?: boolean;
  overwrite?: boolean;
  manifest?: 'csv' | 'rclone';
}

/** Returns how many assets could not be exported. @throws UsageError */
export async function exportAssets(offline: Verbs['offline'], options: ExportOptions): Promise<number> {
  const request = requestOf(options);
  const { config, log } = await offline();
  return runCopy((report, stop) => exportTo(config, request, { log, stop, report }), {
    json: options.json,
    verb: 'export',
    past: 'exported',
  }).catch(filterAsUsage);
}

/** Writes the list of what would be exported. An existing file is replaced only with `overwrite`. @throws UsageError */
export async function writeManifest(
  offline: Verbs['offline'],
  format: 'csv' | 'rclone',
  options: ExportOptions,
): Promise<void> {
  const { to, overwrite = false } = options;
  const selection = selectionOf(options);
  const { config, log } = await offline();
  const problem = (line: string) => {
    setExitCode(1);
    printError(harmless(line));
  };
  const lines = Readable.from(exportList(config, format, selection, { log, problem }));
  const target = to === undefined ? process.stdout : createWriteStream(resolve(to), { flags: overwrite ? 'w' : 'wx' });
  await pipeline(lines, target, { end: to !== undefined }).catch((error) => {
    if (error.code === 'EEXIST') throw new UsageError(`${to} exists already. Use --overwrite to replace it.`);
    filterAsUsage(error);
  });
}

/** The export that the options ask for. @throws UsageError */
function requestOf(options: ExportOptions): ExportRequest {
  const { to: place, overwrite = false } = options;
  if (place === undefined) throw new UsageError('Name a target with --to, or use --manifest.');
  return { ...selectionOf(options), overwrite, to: targetOf(place) };
}

/** The assets that the options select, and the names of their files. @throws UsageError */
function selectionOf(options: ExportOptions): Pick<ExportRequest, 'filter' | 'names' | 'sidecars'> {
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

/** A wrong filter is a wrong use of the command line, too. */
function filterAsUsage(error: unknown): never {
  if (error instanceof z.ZodError) {
    const [{ path, message }] = error.issues as [z.core.$ZodIssue];
    throw new UsageError(`${path.join('.')}: ${message}`);
  }
  return asUsage(error);
}
