import { z } from 'zod';
import { manifestKey } from '../storage/keys.ts';
import { assetStates, byState, expectedOf } from '../store/assets/counts.ts';
import type { Missing } from '../store/verifications/assurance.ts';
import { dayMs } from '../units.ts';
import { textsOf } from './assurance-texts.ts';
import { existingConnection } from './connections.ts';
import type { OperationsDeps } from './deps.ts';
import { drillSummary, drillSummaryOf } from './drills.ts';
import { count, reasonAnswer, shownReason, text, time } from './fields.ts';
import { scrubStatus, scrubStatusOf } from './scrub.ts';

export const assuranceQuery = z.strictObject({ connectionId: text.optional() });

const ok = z.boolean().describe('True if no action is needed.');

const missing = z.object({
  state: z.enum(assetStates),
  skipped: z.boolean().describe('A filter skips them.'),
  reason: reasonAnswer.nullable().describe('The reason of one of them; null: it is to be transferred.'),
  assets: count,
  bytes: count.describe('As the library says.'),
  unknownSize: count.describe('Assets of unknown size.'),
  since: time.describe('When the first of them was found.'),
});

export const assuranceAnswer = z
  .object({
    at: time,
    storage: z.string(),
    connectionId: z.string().nullable().describe('null: all connections.'),
    completeness: z.object({
      ok,
      expected: count.describe('Assets that have a file in the library.'),
      mirrored: count,
      bytes: count.describe('Media in the bucket.'),
      missing: z.array(missing),
    }),
    onlyInLibrary: z
      .object({ ok, assets: count, bytes: count, unknownSize: count, since: time.nullable() })
      .describe('Assets that are neither skipped nor mirrored: lost if the library were lost now.'),
    freshness: z.object({
      ok,
      connections: count.describe('Active ones.'),
      late: count,
      newestSync: time.nullable(),
      oldestSync: time.nullable().describe('The last sync of the connection whose last sync is the oldest.'),
    }),
    verification: scrubStatus.extend({ ok }),
    inventory: z
      .object({
        ok,
        number: count,
        day: z.iso.date(),
        writtenAt: time,
        sha256: z.string().describe('Of the manifest.'),
        keyId: z.string().nullable().describe('The fingerprint of the key that signed it; null: none did.'),
        key: z.string().describe('Where it is in the bucket.'),
      })
      .nullable(),
    drill: drillSummary.extend({ ok }).nullable().describe('The last one that ended.'),
    texts: z
      .object({
        completeness: z.string(),
        onlyInLibrary: z.string(),
        freshness: z.string(),
        verification: z.string(),
        inventory: z.string(),
        drill: z.string(),
      })
      .describe('The six answers as sentences. They may change.'),
  })
  .meta({ id: 'Assurance' });
export type Assurance = z.infer<typeof assuranceAnswer>;

type Deps = Pick<OperationsDeps, 'store' | 'storage' | 'scrub' | 'syncInterval' | 'drillInterval'>;

/** Whether the copy is complete, fresh, verified, proven and recoverable, each with its evidence. */
export async function assuranceOf(deps: Deps, connectionId: string | undefined): Promise<Assurance> {
  const { store, storage } = deps;
  if (connectionId !== undefined) await existingConnection(store, connectionId);
  const [counted, missing, freshness, verification, inventory, drill, now] = await Promise.all([
    connectionId === undefined ? store.counts.totals() : store.counts.byConnection([connectionId]),
    store.assurance.notMirrored(connectionId),
    store.connections.freshness(deps.syncInterval, connectionId),
    verificationOf(deps, connectionId),
    store.manifests.latest(),
    store.drills.last(),
    store.now(),
  ]);
  const states = byState(counted);
  const answers = {
    at: new Date(now).toISOString(),
    storage: storage.name,
    connectionId: connectionId ?? null,
    completeness: {
      ok: states.mirrored === expectedOf(states),
      expected: expectedOf(states),
      mirrored: states.mirrored,
      bytes: counted.reduce((sum, row) => sum + row.bytes, 0),
      missing: missing.map(({ unknown, reason, since, ...row }) => ({
        ...row,
        reason: shownReason(reason),
        unknownSize: unknown,
        since: since.toISOString(),
      })),
    },
    onlyInLibrary: onlyInLibrary(missing),
    freshness: {
      ok: freshness.late === 0 && freshness.connections > 0,
      ...freshness,
      newestSync: freshness.newestSync?.toISOString() ?? null,
      oldestSync: freshness.oldestSync?.toISOString() ?? null,
    },
    verification,
    inventory: inventory
      ? {
          ok: inventory.keyId !== null && now - Date.parse(inventory.day) < 2 * dayMs,
          ...{ number: inventory.number, day: inventory.day, sha256: inventory.sha256, keyId: inventory.keyId },
          writtenAt: inventory.addedAt.toISOString(),
          key: manifestKey(inventory.number),
        }
      : null,
    drill: drill
      ? {
          ok: drill.status === 'passed' && now - drill.finishedAt.getTime() < 2 * (deps.drillInterval ?? Infinity),
          ...drillSummaryOf(drill),
        }
      : null,
  };
  return { ...answers, texts: textsOf(answers, deps.drillInterval) };
}

function onlyInLibrary(missing: Missing[]): Assurance['onlyInLibrary'] {
  const open = missing.filter(({ state, skipped }) => !skipped && state !== 'unavailable');
  const sum = (of: (row: Missing) => number) => open.reduce((total, row) => total + of(row), 0);
  const since = open.map((row) => row.since.toISOString()).sort()[0] ?? null;
  const assets = sum((row) => row.assets);
  return { ok: assets === 0, assets, bytes: sum((row) => row.bytes), unknownSize: sum((row) => row.unknown), since };
}

/** Of one connection: `onTime` still needs a scrub that is fast enough for the whole mirror. */
async function verificationOf({ store, scrub }: Deps, connectionId: string | undefined) {
  const [progress, now] = await Promise.all([store.scrub.progress(), store.now()]);
  const own = connectionId === undefined ? undefined : await store.assurance.verification(connectionId);
  const status = scrubStatusOf({ ...progress, ...own }, scrub, now);
  const unverifiable = own?.unverifiable ?? status.unverifiable;
  return { ...status, unverifiable, ok: status.onTime === true && unverifiable === 0 };
}

export const assuranceOperations = (deps: Deps) => ({
  /** The state of the copy now, for people who must be able to rely on it. */
  assurance: async (query: z.input<typeof assuranceQuery> = {}) =>
    assuranceOf(deps, assuranceQuery.parse(query).connectionId),
});
