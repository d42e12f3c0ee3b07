import type { CopyConfig } from '../config/config.ts';
import { makeDataDir } from '../config/preflight.ts';
import type { Log } from '../floor/log.ts';
import { joinEmbeddedPostgres } from '../store/embedded/embedded.ts';
import { openStore, type Store } from '../store/store.ts';

/**
 * The database of the configuration, for a verb that works without the service. asset-mirror may run meanwhile, or be unable
 * to start. `open` closes it at the end.
 */
export async function openDatabase(config: CopyConfig, log: Log, open: AsyncDisposableStack): Promise<Store> {
  const store = await openStore({ url: await urlOf(config, log, open), log });
  open.defer(() => store.close());
  return store;
}

async function urlOf(config: CopyConfig, log: Log, open: AsyncDisposableStack): Promise<string> {
  if (config.databaseUrl !== undefined) return config.databaseUrl;
  const directory = config.dataDir;
  await makeDataDir(directory, log);
  const embedded = await joinEmbeddedPostgres({ directory, log });
  open.defer(() => embedded.stop());
  return embedded.url;
}
