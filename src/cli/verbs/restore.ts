import type { CopyProgress, CopyReport, RestoreRequest } from '../../offline/restore.ts';
import { runCopy } from '../copy-report.ts';
import { UsageError } from '../failures.ts';
import { placeOf } from '../options.ts';

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
  const { version, asOf, project: projectId, company: companyId, connection, overwrite = false } = options;
  const named = assetIds.length > 0;
  if (!named && !(projectId ?? companyId ?? connection ?? asOf)) {
    throw new UsageError('Name assets, or select some with --project, --company, --connection or --as-of.');
  }
  if (version !== undefined && (assetIds.length !== 1 || asOf)) {
    throw new UsageError('--version needs exactly one asset, and excludes --as-of.');
  }
  const target = placeOf(options.to);
  if (!target) throw new UsageError('--to expects a directory or s3://bucket/prefix.');
  return {
    to: target,
    overwrite,
    assetIds: named ? assetIds : undefined,
    companyId,
    projectId,
    connection,
    version,
    asOf,
  };
}

/** Returns how many assets could not be restored. @throws UsageError */
export const restore = (
  work: (report: CopyReport) => Promise<CopyProgress>,
  options: { json?: boolean; stop: AbortSignal },
): Promise<number> => runCopy(work, { ...options, verb: 'restore', past: 'restored' });
