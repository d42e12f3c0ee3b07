import type { ApiClient, ResyncRequest } from './client.ts';
import { print, printJson } from './output.ts';

export interface ResyncOptions {
  full?: boolean;
  since?: string;
  company?: string;
  project?: string;
  type?: string;
  asset?: string[];
  acceptGone?: boolean;
  json?: boolean;
}

/** Asks for a run of a connection. */
export async function resync(api: ApiClient, connectionId: string, options: ResyncOptions): Promise<void> {
  const request: ResyncRequest = {
    mode: options.full || options.acceptGone ? 'full' : 'incremental',
    ...(options.since !== undefined && { since: timeOf(options.since) }),
    ...(options.company !== undefined && { companyId: options.company }),
    ...(options.project !== undefined && { projectId: options.project }),
    ...(options.type !== undefined && { assetType: options.type }),
    ...(options.asset !== undefined && { assetIds: options.asset }),
    ...(options.acceptGone && { acceptGone: true }),
  };
  const answer = await api.resync(connectionId, request);
  if (options.json) return printJson(answer);
  print(
    `Asked for ${request.mode === 'full' ? 'a full' : 'an incremental'} sync (${answer.syncId}). \`asset-mirror status --watch\` shows it.`,
  );
}

/** A wrong word on the command line: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Epoch milliseconds, from such or from a date. */
function timeOf(text: string): number {
  const time = /^\d+$/.test(text) ? Number(text) : Date.parse(text);
  if (Number.isNaN(time))
    throw new UsageError(`--since ${text}: expected a date such as 2026-01-31, or epoch milliseconds`);
  return time;
}
