import { type RestoreRequest, restoreFrom } from '../../offline/restore.ts';
import { runCopy } from '../copy-report.ts';
import { UsageError } from '../failures.ts';
import { placeOf } from '../options.ts';
import type { Verbs } from '../verb.ts';

interface RestoreOptions {
  json?: boolean;
  to: string;
  version?: string;
  asOf?: Date;
  project?: string;
  company?: string;
  connection?: string;
  overwrite?: boolean;
}

/** Returns how many assets could not be restored. @throws UsageError */
export async function restore(offline: Verbs['offline'], assetIds: string[], options: RestoreOptions): Promise<number> {
  const request = requestOf(assetIds, options);
  const { config, log } = await offline();
  return runCopy((report, stop) => restoreFrom(config, request, { log, stop, report }), {
    json: options.json,
    verb: 'restore',
    past: 'restored',
  });
}

/** @throws UsageError */
function requestOf(assetIds: string[], options: RestoreOptions): RestoreRequest {
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
