import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Choice,
  type Filters,
  filtersOf,
  isWider,
  type Selectable,
  skippingRule,
  skipsCompany,
} from '../../src/filters/filters.ts';

const none: Choice = { companyIds: [], projectIds: [], assetTypes: [] };
const select = (include: Partial<Choice>, exclude: Partial<Choice> = {}): Filters => ({
  include: { ...none, ...include },
  exclude: { ...none, ...exclude },
});
const film: Selectable = { companyId: 'acme', projectId: 'p1', assetType: 'videos' };

describe('what the settings skip', () => {
  test.each<[string, Filters, Selectable, string | null]>([
    ['nothing, where nothing is said', select({}), film, null],
    ['not what is included', select({ assetTypes: ['audio', 'videos'] }), film, null],
    ['what is not included', select({ assetTypes: ['audio'] }), film, 'type videos is not included'],
    ['what is excluded', select({}, { assetTypes: ['videos'] }), film, 'type videos'],
    ['what is both', select({ assetTypes: ['videos'] }, { assetTypes: ['videos'] }), film, 'type videos'],
    [
      'what is included by its type, and excluded by its project',
      select({ assetTypes: ['videos'] }, { projectIds: ['p1'] }),
      film,
      'project p1',
    ],
    [
      'what only one of two lists includes',
      select({ assetTypes: ['videos'], companyIds: ['globex'] }),
      film,
      'company acme is not included',
    ],
    ['not what both include', select({ assetTypes: ['videos'], companyIds: ['acme'] }), film, null],
    [
      'what has no project, where only some are included',
      select({ projectIds: ['p1'] }),
      { ...film, projectId: null },
      'no project, and only some are included',
    ],
    [
      'not what has none, where some are excluded',
      select({}, { projectIds: ['p1'] }),
      { ...film, projectId: null },
      null,
    ],
    [
      'not that of which nobody knows the type',
      select({ assetTypes: ['audio'] }, { assetTypes: ['videos'] }),
      { ...film, assetType: undefined },
      null,
    ],
    ['by names exactly as the library has them', select({}, { assetTypes: ['Videos'] }), film, null],
  ])('%s', (_, filters, asset, rule) => {
    expect(skippingRule(filters, asset)).toBe(rule);
  });

  test("a connection's own lists go before those of the environment, each for itself", () => {
    const defaults = { includeTypes: ['videos'], excludeTypes: ['audio'] };
    expect(filtersOf({}, defaults)).toEqual(select({ assetTypes: ['videos'] }, { assetTypes: ['audio'] }));
    expect(filtersOf({ include: { companyIds: ['acme'] } }, defaults)).toEqual(
      select({ assetTypes: ['videos'], companyIds: ['acme'] }, { assetTypes: ['audio'] }),
    );
    expect(filtersOf({ include: { assetTypes: [] }, exclude: { assetTypes: ['x'] } }, defaults)).toEqual(
      select({}, { assetTypes: ['x'] }),
    );
  });
});

const some = (values: string[]) => fc.subarray(values);
const choices = fc.record({
  companyIds: some(['acme', 'globex']),
  projectIds: some(['p1', 'p2', 'p3']),
  assetTypes: some(['videos', 'audio', 'documents']),
});
const selections = fc.record({ include: choices, exclude: choices });
const assets: fc.Arbitrary<Selectable> = fc.record({
  companyId: fc.constantFrom('acme', 'globex', 'other'),
  projectId: fc.constantFrom('p1', 'p2', 'p4', null),
  assetType: fc.constantFrom('videos', 'audio', 'holograms', null),
});
const wants = (filters: Filters, asset: Selectable) => skippingRule(filters, asset) === null;

describe('for any settings', () => {
  test('exclude wins: more excludes never unskip anything, and nothing that they name is wanted', () => {
    fc.assert(
      fc.property(selections, choices, assets, ({ include, exclude }, more, asset) => {
        const wider = { include, exclude };
        const union = (list: keyof Choice) => [...new Set([...exclude[list], ...more[list]])];
        const narrower = {
          include,
          exclude: {
            companyIds: union('companyIds'),
            projectIds: union('projectIds'),
            assetTypes: union('assetTypes'),
          },
        };
        if (wants(narrower, asset)) expect(wants(wider, asset)).toBe(true);
        if (asset.assetType && narrower.exclude.assetTypes.includes(asset.assetType))
          expect(wants(narrower, asset)).toBe(false);
      }),
    );
  });

  test('an empty include is everything that is not excluded', () => {
    fc.assert(
      fc.property(choices, assets, (exclude, asset) => {
        const named =
          exclude.companyIds.includes(asset.companyId) ||
          exclude.projectIds.includes(asset.projectId ?? '') ||
          exclude.assetTypes.includes(asset.assetType ?? '');
        expect(wants({ include: none, exclude }, asset)).toBe(!named);
      }),
    );
  });

  test('filters that are not wider skip everything that was skipped', () => {
    fc.assert(
      fc.property(selections, selections, assets, (before, after, asset) => {
        if (!isWider(before, after) && wants(after, asset)) expect(wants(before, asset)).toBe(true);
      }),
      { numRuns: 1000 },
    );
    expect(isWider(select({}), select({}))).toBe(false);
    expect(isWider(select({ assetTypes: ['videos'] }), select({}))).toBe(true);
    expect(isWider(select({}), select({ assetTypes: ['videos'] }))).toBe(false);
  });

  test('of a company that is skipped nothing is wanted', () => {
    fc.assert(
      fc.property(selections, assets, (filters, asset) => {
        if (skipsCompany(filters, asset.companyId)) expect(wants(filters, asset)).toBe(false);
      }),
    );
  });
});
