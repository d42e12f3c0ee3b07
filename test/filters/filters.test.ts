import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Choice,
  type Filters,
  filtersOf,
  isWider,
  type Selectable,
  skippedBy,
  skipsCompany,
} from '../../src/filters/filters.ts';
import type { FilterRule } from '../../src/floor/reason-codes.ts';

const none: Choice = { companyIds: [], projectIds: [], assetTypes: [] };
const select = (include: Partial<Choice>, exclude: Partial<Choice> = {}): Filters => ({
  include: { ...none, ...include },
  exclude: { ...none, ...exclude },
});
const film: Selectable = { companyId: 'acme', projectId: 'p1', assetType: 'videos' };

const excluded = (field: FilterRule['field'], value: string): FilterRule => ({ list: 'exclude', field, value });
const notIncluded = (field: FilterRule['field'], value: string | null): FilterRule => ({
  list: 'include',
  field,
  value,
});

describe('the rule that skips an asset', () => {
  test.each<[string, Filters, Selectable, FilterRule | null]>([
    ['nothing if they are empty', select({}), film, null],
    ['no included asset', select({ assetTypes: ['audio', 'videos'] }), film, null],
    ['an asset that is not included', select({ assetTypes: ['audio'] }), film, notIncluded('type', 'videos')],
    ['an excluded asset', select({}, { assetTypes: ['videos'] }), film, excluded('type', 'videos')],
    [
      'an asset that is included and excluded',
      select({ assetTypes: ['videos'] }, { assetTypes: ['videos'] }),
      film,
      excluded('type', 'videos'),
    ],
    [
      'an asset included by its type and excluded by its project',
      select({ assetTypes: ['videos'] }, { projectIds: ['p1'] }),
      film,
      excluded('project', 'p1'),
    ],
    [
      'an asset that only one of two lists includes',
      select({ assetTypes: ['videos'], companyIds: ['globex'] }),
      film,
      notIncluded('company', 'acme'),
    ],
    ['no asset that both lists include', select({ assetTypes: ['videos'], companyIds: ['acme'] }), film, null],
    [
      'an asset without a project if some projects are included',
      select({ projectIds: ['p1'] }),
      { ...film, projectId: null },
      notIncluded('project', null),
    ],
    [
      'no asset without a project if some projects are excluded',
      select({}, { projectIds: ['p1'] }),
      { ...film, projectId: null },
      null,
    ],
    [
      'no asset of unknown type',
      select({ assetTypes: ['audio'] }, { assetTypes: ['videos'] }),
      { ...film, assetType: undefined },
      null,
    ],
    ['nothing by a name in other case', select({}, { assetTypes: ['Videos'] }), film, null],
  ])('filters skip %s', (_, filters, asset, rule) => {
    expect(skippedBy(filters, asset)).toEqual(rule && { code: 'skipped_by_filter', ...rule });
  });

  test('each include or exclude list of a connection replaces that of the environment', () => {
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
const wants = (filters: Filters, asset: Selectable) => skippedBy(filters, asset) === null;

describe('filters of any content', () => {
  test('exclude wins: a longer exclude list adds no asset, and no asset that it names is mirrored', () => {
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

  test('an empty include list includes everything that is not excluded', () => {
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

  test('filters that are not wider add no asset that was skipped', () => {
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

  test('no asset of a skipped company is mirrored', () => {
    fc.assert(
      fc.property(selections, assets, (filters, asset) => {
        if (skipsCompany(filters, asset.companyId)) expect(wants(filters, asset)).toBe(false);
      }),
    );
  });
});
