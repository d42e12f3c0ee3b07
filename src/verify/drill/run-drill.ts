import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../../floor/log.ts';
import { withMirrorIdCheck } from '../../storage/mirror-id.ts';
import type { Storage } from '../../storage/storage.ts';
import type { AssetVersion } from '../../store/database/schema.ts';
import type { DrillReport } from '../../store/drills/drill-report.ts';
import type { Drill } from '../../store/drills/drills.ts';
import type { Store } from '../../store/store.ts';
import { dayOf } from '../publish/inventory.ts';
import { rebuild } from '../rebuild/rebuild.ts';
import { compareAgain, compareAssets, compareKeptVersions, compareOthers } from './compare-records.ts';
import { Findings } from './findings.ts';
import { extrapolate, readSample } from './read-sample.ts';
import { Reservoir } from './reservoir.ts';

export interface DrillDeps {
  store: Store;
  /** Opens the bucket with a client, credentials and connections of its own. */
  openBucket: () => Promise<Storage>;
  /** Decrypts all tokens and secrets with the keys that the settings have now. */
  checkSecrets: () => Promise<DrillReport['secrets']>;
  thumbnails: { mirror: boolean };
  log: Log;
}

const mostProblems = 20;

/**
 * Rehearses a recovery. Changes neither bucket nor records: restores the records from the bucket into a scratch schema, compares
 * them with the database, reads a sample of the files, and opens all secrets. Measures the time.
 */
export async function runDrill(
  deps: DrillDeps,
  { id, sample, startedAt }: Pick<Drill, 'id' | 'sample'> & { startedAt: Date },
  signal: AbortSignal,
): Promise<DrillReport> {
  const { store, thumbnails } = deps;
  await using open = new AsyncDisposableStack();
  const storage = open.adopt(withMirrorIdCheck(await deps.openBucket(), store.bucket.id), (bucket) => bucket.close());
  await storage.check();
  const scratch = await store.openScratch();
  open.defer(() => dropScratch(deps, scratch.close));
  signal.throwIfAborted();

  const problems = { count: 0, lines: [] as string[] };
  const onProblem = (line: string) => {
    problems.count++;
    if (problems.lines.length < mostProblems) problems.lines.push(line);
  };
  const began = performance.now();
  const rebuildDeps = { store: scratch.store, storage, thumbnails };
  const pauses = new Pauses(signal);
  const rebuilt = await rebuild(rebuildDeps, { onProblem, pause: pauses.pause, signal });
  const recordsMs = Math.round(performance.now() - began - pauses.totalMs);

  const findings = new Findings();
  const { pause } = pauses;
  const context = { store, storage, scratch, thumbnails, startedAt, findings, pause, signal };
  const [assets, versions] = [new Reservoir<string>(sample), new Reservoir<AssetVersion>(sample)];
  const { compared, differing } = await compareAssets(context, assets);
  await compareKeptVersions(context, versions);
  await compareOthers(context);
  const chosen = { ids: assets.chosen, versions: versions.chosen, requested: sample };
  const read = await readSample({ store, storage }, { ...chosen, signal });
  const secrets = await deps.checkSecrets();
  await compareAgain(context, differing);
  findings.add('object_damaged', { count: read.damaged.length });
  findings.add('object_unreadable', { count: read.unreadable.length });
  findings.add('secret_unreadable', { count: secrets.unreadable.length });
  const { failures, inProgress, oldest, examples } = findings;
  const all = await store.drills.sizes();
  const finishedAt = new Date(await store.now());
  return {
    version: 1,
    id,
    day: dayOf(finishedAt),
    storage: storage.name,
    startedAt: startedAt.toISOString(),
    finishedAt: finishedAt.toISOString(),
    passed: failures.length === 0,
    failures,
    restored: {
      assets: rebuilt.restored,
      versions: rebuilt.versions,
      tombstones: await scratch.store.drills.countTombstones(),
      bytes: rebuilt.bytes,
      objects: rebuilt.objects,
    },
    loss: { compared, inProgress, oldest, examples, onlyInDatabase: await store.drills.onlyInDatabase() },
    sample: read,
    secrets,
    recovery: { recordsMs, mediaMs: extrapolate(read, all), mediaBytes: all.bytes },
    problems,
  };
}

/** The next drill drops what this one could not. */
async function dropScratch({ log }: DrillDeps, drop: () => Promise<void>): Promise<void> {
  await drop().catch((err) => {
    log.warn({ event: 'drill.schema_left', err }, 'scratch schema not dropped, the next drill drops it');
  });
}

/** Pauses after each piece of work for as long as it took: other work of this process gets the other half of the time. */
class Pauses {
  totalMs = 0;
  readonly #signal: AbortSignal;
  #since = performance.now();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  readonly pause = async (): Promise<void> => {
    const before = performance.now();
    await sleep(before - this.#since, undefined, { signal: this.#signal });
    this.#since = performance.now();
    this.totalMs += this.#since - before;
  };
}
