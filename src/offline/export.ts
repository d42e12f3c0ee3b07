import { randomUUID } from 'node:crypto';
import { createWriteStream, existsSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import type { CopyConfig } from '../config/config.ts';
import type { StorageTarget } from '../config/parsers.ts';
import type { Log } from '../floor/log.ts';
import { type FacetQuery, filterFrom } from '../operations/assets/asset-search.ts';
import { type CopyProgress, countSelected, nothingCopied } from '../verify/copy/copy-each.ts';
import { idOfConnection, WrongSelection } from '../verify/copy/select-copies.ts';
import { type ExportDeps, type ExportOptions, exportAssets } from '../verify/export/export-assets.ts';
import { manifestHead, manifestLines } from '../verify/export/export-list.ts';
import { zipOf } from '../verify/export/export-zip.ts';
import { type ExportedAsset, type ExportSelection, selectExports } from '../verify/export/select-exports.ts';
import { openDatabase } from './open-database.ts';
import { type CopyReport, openMirror, openTarget, requireOther } from './restore.ts';

export interface ExportRequest {
  /** `connectionId` may also be the beginning of an id, or the e-mail or name of the user. */
  filter: FacetQuery;
  names: string;
  sidecars: boolean;
  to: StorageTarget | { kind: 'zip'; path: string };
  /** Replaces files at the target that have other content. */
  overwrite: boolean;
}

/**
 * Copies files of the mirror to `to` under readable names, in a process of its own. Removes and replaces nothing in the bucket.
 * @throws WrongSelection
 */
export async function exportTo(
  config: CopyConfig,
  { to, overwrite, ...request }: ExportRequest,
  { log, stop, report }: { log: Log; stop: AbortSignal; report: CopyReport },
): Promise<CopyProgress> {
  await using open = new AsyncDisposableStack();
  if (to.kind !== 'zip') requireOther(config, to);
  const { store, storage } = await openMirror(config, { log, stop, open });
  const target = to.kind === 'zip' ? to.path : await openTarget(config, to, { log, open });
  const selection = await selectionOf(store, request);
  report.start(storage.name, typeof target === 'string' ? target : target.name);
  const options = { selection, overwrite, onProblem: report.problem, onProgress: report.progress, signal: stop };
  return typeof target === 'string'
    ? await exportZip({ store, storage }, { ...options, path: target })
    : await exportAssets({ store, storage, target }, options);
}

/** The manifest of what an export would copy, or the keys of the files; without reading the bucket. `problem`: see CopyReport. */
export async function* exportList(
  config: CopyConfig,
  format: 'csv' | 'rclone',
  request: Pick<ExportRequest, 'filter' | 'names' | 'sidecars'>,
  { log, problem }: { log: Log; problem: (line: string) => void },
): AsyncGenerator<string> {
  await using open = new AsyncDisposableStack();
  const store = await openDatabase(config, log, open);
  if (format === 'csv') yield manifestHead;
  for await (const one of selectExports(store, await selectionOf(store, request))) {
    if ('problem' in one) problem(`asset ${one.assetId}: ${one.problem}`);
    else yield format === 'csv' ? manifestLines(one) : one.files.map(({ at }) => `${at}\n`).join('');
  }
}

async function selectionOf(
  store: ExportDeps['store'],
  { filter, ...how }: Pick<ExportRequest, 'filter' | 'names' | 'sidecars'>,
): Promise<ExportSelection> {
  const { connectionId } = filter;
  const id = connectionId === undefined ? undefined : await idOfConnection(store, connectionId);
  return { filter: await filterFrom(store, { ...filter, connectionId: id }), ...how };
}

/** Maximum of assets in a .zip file: the entries of the archive are in memory. */
const mostInZip = 50_000;

/** The archive appears at `path` when it is complete. An interrupted one begins again. */
async function exportZip(deps: ExportDeps, options: ExportOptions & { path: string }): Promise<CopyProgress> {
  const { path, overwrite, selection, onProblem, onProgress, signal } = options;
  const progress: CopyProgress = { ...nothingCopied };
  if (!overwrite && existsSync(path))
    throw new WrongSelection(`${path} exists already. Use --overwrite to replace it.`);
  progress.total = await countSelected(selectExports(deps.store, selection), signal);
  if (progress.total.assets > mostInZip) {
    throw new WrongSelection(
      `A .zip file takes ${mostInZip} assets, and ${progress.total.assets} match. Export to a directory.`,
    );
  }
  onProgress(progress);
  const assets: ExportedAsset[] = [];
  for await (const one of selectExports(deps.store, selection)) {
    if (!('problem' in one)) assets.push(one);
    else {
      progress.failed++;
      onProblem(`asset ${one.assetId}: ${one.problem}`);
    }
  }
  const draft = `${path}.${randomUUID().slice(0, 8)}.partial`;
  const onFile = (bytes: number) => {
    progress.bytes += bytes;
    onProgress(progress);
  };
  const zip = zipOf({ storage: deps.storage, signal }, assets, { onFile });
  try {
    await pipeline(zip, createWriteStream(draft, { flags: 'wx', flush: true }), { signal });
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  progress.copied = assets.length;
  return progress;
}
