import { z } from 'zod';
import { applyFilters } from '../../filters/apply-filters.ts';
import { type Choice, filtersOf, isWider } from '../../filters/filters.ts';
import { bandwidthIn } from '../../floor/bandwidth-limit.ts';
import { changeLimitOf } from '../../floor/held-changes.ts';
import { parseChangeLimit, parseDuration, syncIntervals } from '../../floor/units.ts';
import { within } from '../../floor/within.ts';
import { ceilingOf } from '../../pacing/adaptive-concurrency.ts';
import type { Connection } from '../../store/database/schema.ts';
import type { OperationsDeps } from '../deps.ts';
import { text } from '../fields.ts';
import { bandwidth, showBandwidth, shownBandwidth } from '../status/settings.ts';
import { changedTags, tagsChange } from './tags.ts';
import { type NamedField, type NamesDeps, unknownNames, unknownNamesRefused } from './unknown-names.ts';

/** How long an answer waits until changed filters are applied; after that they are applied in the background. */
const patienceMs = 3000;

const wanted = 'expected a duration such as 15m or 1h, or a number of milliseconds, from 1s to 365d';
const milliseconds = z.int(wanted).min(syncIntervals.least, wanted).max(syncIntervals.most, wanted);
/** Milliseconds, or a text such as `15m`. */
const interval = z.union([milliseconds, text.transform(parseDuration).pipe(milliseconds)], wanted);

const wholeNumber = 'expected a whole number from 1 to 1000';

const wantedLimit = 'expected percent and assets, such as 20%,10';
const percentAndAssets = z.strictObject({
  percent: z.int(wantedLimit).min(0, wantedLimit).max(100, wantedLimit),
  assets: z.int(wantedLimit).min(0, wantedLimit),
});
/** Percent and assets, or a text such as `20%,10`. */
const changeLimit = z.union([percentAndAssets, text.transform(parseChangeLimit).pipe(percentAndAssets)], wantedLimit);

const names = z.array(text).max(1000).nullable().optional();

const choice = z.strictObject({ companyIds: names, projectIds: names, assetTypes: names }).nullable().optional();

export const connectionSettingsRequest = z
  .strictObject({
    syncInterval: interval
      .nullable()
      .optional()
      .describe('Time between incremental syncs: milliseconds, or a text such as `15m`.'),
    include: choice.describe(
      'Mirrors only assets that match every list that is not empty. A list replaces the earlier one; an empty one clears it.',
    ),
    exclude: choice.describe('Skips assets that match any list, even if they are included.'),
    concurrency: z
      .int(wholeNumber)
      .min(1, wholeNumber)
      .max(1000, wholeNumber)
      .nullable()
      .optional()
      .describe('Maximum assets in transfer at once.'),
    bandwidth: bandwidth
      .nullable()
      .optional()
      .describe(
        'Download limit of each process: bytes per second, a text such as `20MiB/s`, or a timetable. BANDWIDTH_LIMIT applies, too.',
      ),
    holdMissing: changeLimit
      .nullable()
      .optional()
      .describe(
        'Holds a company if at least this percentage and more than this number of its assets are missing. Also a text such as `50%,1`.',
      ),
    holdReplaced: changeLimit
      .nullable()
      .optional()
      .describe(
        'Holds a company if more than this percentage and number of its assets would be replaced, or removed, within 24 hours.',
      ),
    tags: tagsChange.nullable().optional().describe('Only named tags change; null removes one.'),
    force: z.boolean().optional().describe('Accepts companies, projects and types that are unknown.'),
  })
  .meta({ id: 'ConnectionSettingsRequest', description: 'Only named settings change; null restores the default.' });
type Change = Omit<z.output<typeof connectionSettingsRequest>, 'force' | 'tags'>;

const lists = ['companyIds', 'projectIds', 'assetTypes'] as const;

const chosen = z.object({
  companyIds: z.array(z.string()),
  projectIds: z.array(z.string()),
  assetTypes: z.array(z.string()),
});

const shownLimit = z.object({ percent: z.int(), assets: z.int() });

/** The settings in effect: its own, or those of the environment. */
export const connectionSettings = z
  .object({
    syncInterval: z.number().describe('Milliseconds.'),
    include: chosen,
    exclude: chosen,
    concurrency: z.int(),
    ...shownBandwidth,
    holdMissing: shownLimit.describe(
      'A company is held if at least this percentage and more than this number of its assets are missing.',
    ),
    holdReplaced: shownLimit.describe(
      'A company is held if more than this percentage and number of its assets would be replaced, or removed, within 24 hours.',
    ),
    own: z
      .array(z.string())
      .describe('The names of the settings that this connection has of its own; the others come from the environment.'),
  })
  .meta({ id: 'ConnectionSettings' });

/** The effects of a change. */
export const changedSettings = z.object({
  skipped: z.int().nullable().describe('Assets skipped by the change; null: still being applied.'),
  unskipped: z.int().nullable().describe('Assets that are no longer skipped; null: still being applied.'),
  unknown: chosen.describe(
    'Accepted with `force`: companies that the connection cannot read, unknown projects and types.',
  ),
  syncId: z
    .string()
    .nullable()
    .describe(
      'The full sync that lists what earlier syncs did not list, because filters skipped it; null: none is needed.',
    ),
});

type Deps = Pick<OperationsDeps, 'store' | 'queues' | 'log' | 'filters'> & NamesDeps;

/** The settings in effect for a connection, and the names of its own. */
export function settingsOf(
  { settings }: Pick<Connection, 'settings'>,
  deps: Pick<OperationsDeps, 'sync' | 'transfer' | 'filters'>,
) {
  return {
    syncInterval: typeof settings.syncInterval === 'number' ? settings.syncInterval : deps.sync.interval,
    ...filtersOf(settings, deps.filters),
    concurrency: ceilingOf(settings, deps.transfer.perConnection),
    ...showBandwidth(bandwidthIn(settings.bandwidth)),
    holdMissing: changeLimitOf(settings, 'missing'),
    holdReplaced: changeLimitOf(settings, 'replaced'),
    own: Object.entries(settings)
      .flatMap(([name, value]) =>
        isChoice(name) && value !== null && typeof value === 'object'
          ? Object.keys(value).map((list) => `${name}.${list}`)
          : [name],
      )
      .sort(),
  };
}

/** Merges a change into the settings; null removes (RFC 7396). */
function merged(before: Record<string, unknown>, change: Change): Record<string, unknown> {
  const after: Record<string, unknown> = { ...before };
  for (const [name, value] of Object.entries(change)) {
    const next = isChoice(name) && value ? withLists(before[name], value as Record<string, string[] | null>) : value;
    if (next === null) delete after[name];
    else if (next !== undefined) after[name] = next;
  }
  return after;
}

const isChoice = (name: string) => name === 'include' || name === 'exclude';

function withLists(before: unknown, change: Record<string, string[] | null | undefined>) {
  const after = { ...(before as Record<string, string[]> | undefined) };
  for (const [list, values] of Object.entries(change)) {
    if (values === null) delete after[list];
    else if (values !== undefined) after[list] = [...new Set(values)];
  }
  return Object.keys(after).length > 0 ? after : null;
}

/** The names in the filters of a change. */
const namesIn = (change: Change): NamedField[] =>
  (['include', 'exclude'] as const).flatMap((side) =>
    lists.map((list) => ({ field: `${side}.${list}`, list, values: change[side]?.[list] ?? [] })),
  );

export function connectionSettingsOperations<T extends object>(deps: Deps, describe: (id: string) => Promise<T>) {
  const { store, queues, log, filters: defaults } = deps;
  return {
    /**
     * Changes settings of a connection, in all processes at once. Assets that the new filters skip are no longer due;
     * assets that they no longer skip are due at once, and a full sync lists those that were never listed.
     */
    async changeConnection(id: string, request: z.input<typeof connectionSettingsRequest>) {
      const { force, tags: tagChange, ...change } = connectionSettingsRequest.parse(request);
      await describe(id);
      const unknown = await unknownNames(deps, id, namesIn(change));
      if (unknown.length > 0 && !force) {
        throw unknownNamesRefused(unknown, 'Correct the names, or accept them with "force": true.');
      }
      const accepted = (list: keyof Choice) => [
        ...new Set(unknown.flatMap((it) => (it.list === list ? it.value : []))),
      ];
      let different = false;
      const all = { ...change, ...(tagChange !== undefined && { tags: tagChange }) };
      const syncId = await store.connections.changeSettings(id, all, ({ settings: before, tags }) => {
        const settings = merged(before, change);
        const [was, is] = [filtersOf(before, defaults), filtersOf(settings, defaults)];
        const wider = isWider(was, is);
        different = wider || isWider(is, was);
        return { settings, tags: changedTags(tags, tagChange), applyFilters: different, fullSync: wider };
      });
      if (syncId !== undefined) await queues.offerSyncs([id]);
      // If this process ends, the dispatcher continues.
      const applied = different
        ? await within(patienceMs, applyFilters({ store, log, filters: defaults }, id, new AbortController().signal))
        : { skipped: 0, unskipped: 0 };
      return {
        ...(await describe(id)),
        changed: {
          skipped: applied?.skipped ?? null,
          unskipped: applied?.unskipped ?? null,
          unknown: {
            companyIds: accepted('companyIds'),
            projectIds: accepted('projectIds'),
            assetTypes: accepted('assetTypes'),
          },
          syncId: syncId ?? null,
        },
      };
    },
  };
}
