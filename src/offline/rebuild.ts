import { randomUUID } from 'node:crypto';
import type { CopyConfig } from '../config/config.ts';
import type { Log } from '../floor/log.ts';
import { bucketIdKey } from '../storage/keys.ts';
import { withMirrorIdCheck } from '../storage/mirror-id.ts';
import { openStorage } from '../storage/open.ts';
import { type RebuildProgress, rebuild } from '../verify/rebuild/rebuild.ts';
import { openDatabase } from './open-database.ts';

/** Called during a rebuild. */
export interface RebuildReport {
  start: (storage: string) => void;
  /** Called with one sentence for each record that cannot be used as it is. */
  problem: (line: string) => void;
  progress: (progress: RebuildProgress) => void;
}

/**
 * Restores the database from the bucket with the configuration of asset-mirror, in a process of its own. asset-mirror may run
 * meanwhile, or be unable to start.
 */
export async function rebuildFrom(
  config: CopyConfig,
  options: {
    log: Log;
    stop: AbortSignal;
    report: RebuildReport;
  },
): Promise<RebuildProgress> {
  const { log, stop, report } = options;
  await using open = new AsyncDisposableStack();
  const store = await openDatabase(config, log, open);
  stop.throwIfAborted();

  const objects = await openStorage(config.storage, { memory: store.checksumSupport, log });
  let id = await store.bucket.known();
  const proposed = randomUUID();
  const storage = withMirrorIdCheck(objects, async (find) => (id ??= await find(proposed)), { adopt: true });
  open.defer(() => storage.close());
  await storage.check();
  stop.throwIfAborted();
  report.start(storage.name);
  const rebuilt = await rebuild(
    { store, storage, thumbnails: config.thumbnails },
    { onProblem: report.problem, onProgress: report.progress, signal: stop },
  );
  // A bucket without id and records is the wrong one.
  if (id === proposed && rebuilt.restored + rebuilt.known === 0) await objects.remove(bucketIdKey);
  // Last: until all is restored, a running asset-mirror must not accept the bucket and fetch assets that are in it.
  else await store.bucket.id(async () => id!);
  return rebuilt;
}
