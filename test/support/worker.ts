import type { MirrorDeps } from '../../src/mirror/deps.ts';
import { followUp } from '../../src/mirror/follow-up.ts';
import { mirrorAsset } from '../../src/mirror/mirror-asset.ts';
import type { Outcome } from '../../src/mirror/retry-or-fail.ts';
import { createBucketBreaker, createLibraryBreaker } from '../../src/pacing/breakers.ts';
import { createOutageDetector } from '../../src/pacing/outage.ts';
import { Leases } from '../../src/queue/leases.ts';
import { mirrorDeps } from '../../src/workers.ts';
import { died, mortal } from './mortal.ts';
import type { Stage } from './stage.ts';

/** A worker of a stage that does one job at a time, and may die at any step. */
export function workerOf({ mirror, query }: Pick<Stage, 'mirror' | 'query'>) {
  const { context } = mirror.service;
  const leases = new Leases(context);
  const breaker = createBucketBreaker({ ...context, onChange() {} });
  const toLibrary = createLibraryBreaker({ ...context, onChange() {} });
  const { withToken } = context;
  const healthy = mirrorDeps(context, {
    breaker,
    libraryBreaker: toLibrary,
    outages: createOutageDetector(),
    withToken,
  });

  /** Works on an asset: fetches its media if that is due, else does a follow-up check. */
  async function work(id: string, deps: MirrorDeps = healthy): Promise<Outcome> {
    await query('UPDATE assets SET queued_at = now(), next_at = now(), lease_until = NULL WHERE id = $1', [id]);
    const leased = await leases.take(id);
    if (!leased) throw new Error(`there is nothing to do for ${id}`);
    try {
      return await (leased.asset.state === 'mirrored' ? followUp(deps, leased) : mirrorAsset(deps, leased));
    } finally {
      leased.forget();
    }
  }

  return {
    work,
    deps: healthy,
    /** Works on an asset until nothing is due for it. */
    async complete(id: string): Promise<void> {
      for (let { outcome } = await work(id); outcome !== 'complete'; ) ({ outcome } = await work(id));
    },
    /** Works on an asset, and dies before step `at`; steps are calls that write to the database or the bucket. False: it had less steps. */
    async dieAt(id: string, at: number): Promise<boolean> {
      const process = mortal(at);
      const storage = process(context.storage, ['get', 'head', 'list']);
      const store = process(context.store, ['get', 'parts', 'known']);
      return died(work(id, { ...healthy, storage, store }));
    },
    async close(): Promise<void> {
      breaker.stop();
      toLibrary.stop();
      leases.close();
    },
  };
}
