import { z } from 'zod';
import { dayMs } from '../../floor/units.ts';
import { version } from '../../floor/version.ts';
import { manifestKey } from '../../storage/keys.ts';
import { assetStates, byState, expectedOf } from '../../store/counts/states.ts';
import type { Missing } from '../../store/verifications/assurance.ts';
import { existingConnection } from '../connections/connections.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, isoTimes, reasonAnswer, shownReason, text, time, withText } from '../fields.ts';
import { question, questionsOf } from './assurance-questions.ts';
import { drillSummary, drillSummaryOf } from './drills.ts';
import { inBucketStates, manifestInBucket } from './manifest-in-bucket.ts';
import { scrubStatus, scrubStatusOf } from './scrub.ts';

export const assuranceQuery = z.strictObject({ connectionId: text.optional() });

const ok = z.boolean().describe('True if no action is needed.');

const missing = z.object({
  state: z.enum(assetStates),
  skipped: z.boolean().describe('Whether a filter skips these assets.'),
  reason: reasonAnswer.nullable().describe('The reason of one of these assets; null: they wait to be transferred.'),
  assets: count,
  bytes: count.describe('Size as the library declares it.'),
  unknownSize: count.describe('Assets of unknown size.'),
  since: time.describe('When the first of them was found.'),
});

const findings = z
  .object({
    objects: count,
    assets: count,
    oldest: time.nullable().describe('When the first of them was found.'),
    examples: z
      .array(
        z.object({
          assetId: z.string(),
          key: z.string(),
          text: z.string().describe('What was found.'),
          reason: reasonAnswer.describe('The same as a code with data.'),
          at: time.describe('When it was found last.'),
          verificationId: z.string().nullable().describe('null: the scrub found it.'),
        }),
      )
      .describe('At most 10, the newest first.'),
  })
  .describe(
    'Objects that a verification or the scrub found missing, different or unreadable, and that were not repaired since.',
  );

export const assuranceAnswer = z
  .object({
    at: time,
    mirrorId: z.string().nullable(),
    version: z.string().describe('The version of asset-mirror.'),
    storage: z.string(),
    connectionId: z.string().nullable().describe('null: all connections.'),
    completeness: z.object({
      ok,
      expected: count.describe('Assets that have a file in the library.'),
      mirrored: count,
      bytes: count.describe('Size of the media in the bucket.'),
      missing: z.array(missing),
    }),
    findings,
    onlyInLibrary: z
      .object({ ok, assets: count, bytes: count, unknownSize: count, since: time.nullable() })
      .describe('Assets that are neither skipped nor mirrored. They would be lost with the library.'),
    freshness: z.object({
      ok,
      connections: count.describe('Active connections.'),
      late: count,
      neverSynced: count.describe('Active connections whose first sync has not ended.'),
      oldestSync: time.nullable().describe('The earliest `lastSyncAt` of the active connections.'),
    }),
    verification: scrubStatus.extend({ ok }),
    inventory: z
      .object({
        ok,
        number: count,
        day: z.iso.date(),
        writtenAt: time,
        sha256: z.string().describe('SHA-256 of the manifest.'),
        keyId: z.string().nullable().describe('The fingerprint of the key that signed it; null: it is not signed.'),
        key: z.string().describe('The key of the manifest in the bucket.'),
        inBucket: z
          .enum(inBucketStates)
          .describe('Whether the manifest is there now; `unknown`: the bucket does not answer.'),
      })
      .nullable(),
    drill: drillSummary.extend({ ok }).nullable().describe('The last one that ended.'),
    questions: z.array(question).describe('The six answers in words.'),
  })
  .meta({ id: 'Assurance' });
export type Assurance = z.infer<typeof assuranceAnswer>;

type Deps = Pick<OperationsDeps, 'store' | 'storage' | 'scrub' | 'sync' | 'drillInterval'>;

/** Whether the copy is complete, fresh, verified, proven and recoverable, each with its evidence. */
export async function assuranceOf(deps: Deps, connectionId: string | undefined): Promise<Assurance> {
  const { store, storage } = deps;
  if (connectionId !== undefined) await existingConnection(store, connectionId);
  const at = await store.now();
  const [counted, missing, found, freshness, scrub, inventory, drill, mirrorId] = await Promise.all([
    connectionId === undefined ? store.counts.totals() : store.counts.byConnection([connectionId]),
    store.assurance.notMirrored(connectionId),
    store.assurance.findings(connectionId),
    store.connections.freshness(deps.sync.interval, connectionId),
    scrubOf(deps, connectionId, at),
    inventoryOf(deps, at),
    store.drills.last(),
    store.bucket.known(),
  ]);
  const states = byState(counted);
  // Otherwise nobody knows what is new in the library.
  const isListed = freshness.connections > 0 && freshness.neverSynced === 0;
  const answers = {
    at: new Date(at).toISOString(),
    mirrorId: mirrorId ?? null,
    version,
    storage: storage.name,
    connectionId: connectionId ?? null,
    completeness: {
      ok: states.mirrored === expectedOf(states) && found.objects === 0,
      expected: expectedOf(states),
      mirrored: states.mirrored,
      bytes: counted.reduce((sum, row) => sum + row.bytes, 0),
      missing: missing.map(({ unknown, reason, ...row }) => ({
        ...isoTimes(row),
        reason: shownReason(reason),
        unknownSize: unknown,
      })),
    },
    findings: {
      objects: found.objects,
      assets: found.assets,
      oldest: found.oldest?.toISOString() ?? null,
      examples: found.examples.map((example) => {
        const reason = withText(example.reason);
        return { ...isoTimes(example), text: reason.text, reason };
      }),
    },
    onlyInLibrary: onlyInLibrary(missing, isListed),
    freshness: {
      ok: isListed && freshness.late === 0,
      ...isoTimes(freshness),
    },
    verification: {
      ...scrub,
      ok: scrub.onTime === true && scrub.unverifiable === 0 && found.objects === 0,
    },
    inventory,
    drill: drill
      ? {
          ok: drill.status === 'passed' && at - drill.finishedAt.getTime() < 2 * (deps.drillInterval ?? Infinity),
          ...drillSummaryOf(drill),
        }
      : null,
  };
  return { ...answers, questions: questionsOf(answers, deps.drillInterval) };
}

function onlyInLibrary(missing: Missing[], isListed: boolean): Assurance['onlyInLibrary'] {
  const open = missing.filter(({ state, skipped }) => !skipped && state !== 'unavailable');
  const sum = (of: (row: Missing) => number) => open.reduce((total, row) => total + of(row), 0);
  const since = open.map((row) => row.since.toISOString()).sort()[0] ?? null;
  const assets = sum((row) => row.assets);
  const ok = assets === 0 && isListed;
  return { ok, assets, bytes: sum((row) => row.bytes), unknownSize: sum((row) => row.unknown), since };
}

/** Even for one connection, `onTime` is true only if the scrub is fast enough for the whole mirror. */
async function scrubOf({ store, scrub }: Deps, connectionId: string | undefined, now: number) {
  const progress = await store.scrub.progress();
  const own = connectionId === undefined ? undefined : await store.assurance.verification(connectionId);
  const status = scrubStatusOf({ ...progress, ...own }, scrub, now);
  return { ...status, unverifiable: own?.unverifiable ?? status.unverifiable };
}

async function inventoryOf({ store, storage }: Deps, now: number): Promise<Assurance['inventory']> {
  const last = await store.manifests.latest();
  if (!last) return null;
  const { number, day, sha256, keyId, addedAt } = last;
  const inBucket = await manifestInBucket(storage, last);
  return {
    ok: keyId !== null && now - Date.parse(day) < 2 * dayMs && inBucket === 'same',
    number,
    day,
    sha256,
    keyId,
    inBucket,
    writtenAt: addedAt.toISOString(),
    key: manifestKey(number),
  };
}

export const assuranceOperations = (deps: Deps) => ({
  /** The state of the copy now, for people who must be able to rely on it. */
  assurance: async (query: z.input<typeof assuranceQuery> = {}) =>
    assuranceOf(deps, assuranceQuery.parse(query).connectionId),
});
