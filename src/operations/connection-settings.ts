import { z } from 'zod';
import { applyFilters } from '../filters/apply-filters.ts';
import { type Choice, filtersOf, isWider } from '../filters/filters.ts';
import { ceilingOf } from '../pacing/adaptive-concurrency.ts';
import type { Connection } from '../store/database/schema.ts';
import { parseDuration, syncIntervals } from '../units.ts';
import { within } from '../within.ts';
import type { OperationsDeps } from './deps.ts';
import { text } from './fields.ts';
import { rate } from './settings.ts';
import { strangers } from './unknown-names.ts';

/** How long an answer waits for the assets to be held against changed settings; what is left goes on behind it. */
const patienceMs = 3000;

const wanted = 'expected milliseconds, or such as 15m or 1h, from 1s to 365d';
const milliseconds = z.int(wanted).min(syncIntervals.least, wanted).max(syncIntervals.most, wanted);
/** Milliseconds, or as people write it (`15m`). */
const interval = z.union([milliseconds, text.transform(parseDuration).pipe(milliseconds)], wanted);

const names = z.array(text).max(1000).nullable().optional();

/** Lists that are named take the place of those of before; null: as in the environment; an empty one says nothing. */
const choice = z.strictObject({ companyIds: names, projectIds: names, assetTypes: names }).nullable().optional();

/** What is named changes, and nothing else; null returns it to its default. */
export const connectionSettingsRequest = z
  .strictObject({
    syncInterval: interval.nullable().optional(),
    /** What is mirrored: an asset that each list names which is not empty. */
    include: choice,
    /** What is not: an asset that any list names, whatever is included. */
    exclude: choice,
    /** Assets at once. */
    concurrency: z.int().min(1).max(1000).nullable().optional(),
    /** Bytes per second that each process downloads for it, or as people write it (`20MiB/s`); BANDWIDTH_LIMIT stays above. */
    bandwidth: rate.nullable().optional(),
  })
  .meta({ id: 'ConnectionSettingsRequest' });
export type ConnectionSettingsRequest = z.input<typeof connectionSettingsRequest>;
type Change = z.output<typeof connectionSettingsRequest>;

const chosen = z.object({
  companyIds: z.array(z.string()),
  projectIds: z.array(z.string()),
  assetTypes: z.array(z.string()),
});

/** The settings that a connection goes by, its own or those of the environment. */
export const connectionSettings = z
  .object({
    syncInterval: z.number().describe('Milliseconds.'),
    include: chosen,
    exclude: chosen,
    concurrency: z.int(),
    bandwidth: z.number().nullable().describe('Bytes per second and process; null: only that of the process.'),
    own: z.array(z.string()).describe('Those of them that are its own, by name.'),
  })
  .meta({ id: 'ConnectionSettings' });

/** What came of a change, beside the connection. */
export const changedSettings = z.object({
  skipped: z.int().nullable().describe('Assets that the change skipped; null: it is still at work on that.'),
  letIn: z.int().nullable().describe('Assets that it let in; null: as above.'),
  unknown: chosen.describe(
    'What it names and the connection knows nothing of, perhaps by a slip: companies that it does not read, projects and types that no asset is of.',
  ),
  syncId: z.string().nullable().describe('The full sync that finds what was never listed; null: none is needed.'),
});

type Deps = Pick<OperationsDeps, 'store' | 'queues' | 'log' | 'filters'>;

/** The settings that a connection has, and of these its own, by the names under which they are changed. */
export function settingsOf(
  { settings }: Pick<Connection, 'settings'>,
  deps: Pick<OperationsDeps, 'syncInterval' | 'perConnection' | 'filters'>,
) {
  return {
    syncInterval: typeof settings.syncInterval === 'number' ? settings.syncInterval : deps.syncInterval,
    ...filtersOf(settings, deps.filters),
    concurrency: ceilingOf(settings, deps.perConnection),
    bandwidth: typeof settings.bandwidth === 'number' ? settings.bandwidth : null,
    own: Object.entries(settings)
      .flatMap(([name, value]) =>
        value !== null && typeof value === 'object' ? Object.keys(value).map((list) => `${name}.${list}`) : [name],
      )
      .sort(),
  };
}

/** Of objects, those of before with what is named; what is null is skipped (RFC 7396). */
function merged(before: Record<string, unknown>, change: Change): Record<string, unknown> {
  const after: Record<string, unknown> = { ...before };
  for (const [name, value] of Object.entries(change)) {
    const next = value !== null && typeof value === 'object' ? withLists(before[name], value) : value;
    if (next === null) delete after[name];
    else if (next !== undefined) after[name] = next;
  }
  return after;
}

function withLists(before: unknown, change: Record<string, string[] | null | undefined>) {
  const after = { ...(before as Record<string, string[]> | undefined) };
  for (const [list, values] of Object.entries(change)) {
    if (values === null) delete after[list];
    else if (values !== undefined) after[list] = [...new Set(values)];
  }
  return Object.keys(after).length > 0 ? after : null;
}

/** `describe`: a connection as people are told of it. */
export function connectionSettingsOperations<T extends object>(deps: Deps, describe: (id: string) => Promise<T>) {
  const { store, queues, log, filters: defaults } = deps;
  return {
    /**
     * Changes settings of a connection; all processes take them over at once. What a narrower filters skips is no
     * longer due, what a wider one lets in is due at once, and what was never listed because of it is found by a full sync.
     */
    async changeConnection(id: string, request: ConnectionSettingsRequest) {
      const change = connectionSettingsRequest.parse(request);
      await describe(id);
      let wider = false;
      let different = false;
      await store.filters.change(id, change, (before) => {
        const settings = merged(before, change);
        const [was, is] = [filtersOf(before, defaults), filtersOf(settings, defaults)];
        wider = isWider(was, is);
        different = wider || isWider(is, was);
        return { settings, applyFilters: different };
      });
      const syncId = wider ? await store.syncs.request(id, 'full') : undefined;
      if (syncId !== undefined) await within(2000, queues.addSync(id)).catch(() => {});
      // Whoever dispatches goes on with it, should this process end.
      const applied = different
        ? await within(patienceMs, applyFilters({ store, log, ...defaults }, id, new AbortController().signal))
        : { skipped: 0, letIn: 0 };
      const named = (list: keyof Choice) => [change.include, change.exclude].flatMap((choice) => choice?.[list] ?? []);
      return {
        ...(await describe(id)),
        changed: {
          skipped: applied?.skipped ?? null,
          letIn: applied?.letIn ?? null,
          unknown: await strangers(store, id, {
            companyIds: named('companyIds'),
            projectIds: named('projectIds'),
            assetTypes: named('assetTypes'),
          }),
          syncId: syncId ?? null,
        },
      };
    },
  };
}
