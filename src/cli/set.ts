import { formatBytes, parseRate } from '../units.ts';
import type { ApiClient } from './client.ts';
import { print, printJson } from './output.ts';
import { UsageError } from './resync.ts';

export interface SetOptions {
  bandwidth: string;
  json?: boolean;
}

/** Changes what every process of the running service keeps to. */
export async function set(api: ApiClient, options: SetOptions): Promise<void> {
  const bandwidth = options.bandwidth === 'default' ? null : parseRate(options.bandwidth);
  if (bandwidth === undefined) {
    throw new UsageError(`--bandwidth ${options.bandwidth}: expected such as 20MiB/s, or default`);
  }
  const settings = await api.changeSettings({ bandwidth });
  if (options.json) return printJson(settings);
  const limit = settings.bandwidth === null ? 'without a limit' : `at most ${formatBytes(settings.bandwidth)}/s`;
  print(
    settings.from === 'settings'
      ? `Each process now downloads ${limit}. \`asset-mirror set --bandwidth default\` returns to BANDWIDTH_LIMIT.`
      : `Each process keeps to its own BANDWIDTH_LIMIT again; that of the one that answered: ${limit}.`,
  );
}
