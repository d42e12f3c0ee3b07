import { expect, test } from 'vitest';
import { dayMs } from '../../src/floor/units.ts';
import { textsOf } from '../../src/operations/assurance/assurance-texts.ts';

type Answers = Parameters<typeof textsOf>[0];

const drill: NonNullable<Answers['drill']> = {
  ...{
    ok: true,
    id: 'a',
    status: 'passed',
    scheduled: true,
    error: null,
    reason: null,
    key: 'k',
    failures: [],
    lost: 0,
  },
  ...{ requestedAt: '2026-10-31T00:00:00Z', startedAt: '2026-10-31T00:00:00Z', finishedAt: '2026-10-31T00:00:00Z' },
  ...{ recovery: { recordsMs: 1500, mediaMs: null, mediaBytes: 0 }, oldestLoss: null, text: 'All is restored' },
};
const good: Answers = {
  at: '2026-11-01T00:00:00.000Z',
  completeness: { expected: 3000, mirrored: 3000, bytes: 1024 },
  onlyInLibrary: { assets: 0, bytes: 0, unknownSize: 0 },
  freshness: { connections: 2, late: 0 },
  findings: { objects: 0, oldest: null },
  verification: { cycle: 90 * dayMs, oldest: null, onTime: true, unverifiable: 0 },
  inventory: { number: 12, day: '2026-11-01', keyId: 'ab', inBucket: 'same' },
  drill,
};
const texts = (answers: Partial<Answers>, interval: number | undefined = 7 * dayMs) =>
  textsOf({ ...good, ...answers }, interval);

test('good answers of Assurance say what is good', () => {
  expect(texts({})).toEqual({
    completeness: '3,000 of 3,000 assets with a file are mirrored (100 %), 1.0 KiB',
    onlyInLibrary: 'Nothing: everything that is not skipped is in the bucket',
    freshness: 'All 2 active connections were synced in time',
    verification: 'Each file is read back within 90 days',
    inventory: 'Inventory 12 of 2026-11-01 is signed',
    drill: 'All is restored',
  });
});

test('answers of Assurance that are not good say why', () => {
  const { verification, inventory } = good;
  expect(texts({ completeness: { expected: 3000, mirrored: 2999, bytes: 0 } }).completeness).toContain('(99.9 %)');
  expect(texts({ onlyInLibrary: { assets: 2, bytes: 1024, unknownSize: 1 } }).onlyInLibrary).toBe(
    '1.0 KiB in 2 assets, 1 of them of unknown size',
  );
  expect(texts({ freshness: { connections: 2, late: 1 } }).freshness).toBe(
    '1 of 2 active connections not synced in time',
  );
  const late = texts({ verification: { ...verification, onTime: false, unverifiable: 1 } }).verification;
  expect(late).toBe('The scrub is late: not every file is read back within 90 days; 1 file cannot be verified');
  expect(texts({ verification: { ...verification, cycle: null, onTime: null } }).verification).toBe(
    'The scrub is off: files are not read back',
  );
  expect(texts({ inventory: { ...inventory!, day: '2026-10-29' } }).inventory).toBe(
    'Inventory 12 of 2026-10-29 is signed, but 3 days old',
  );
  expect(texts({ inventory: { ...inventory!, keyId: null } }).inventory).toContain('is not signed');
  expect(texts({ drill: { ...drill, ok: false, finishedAt: '2026-10-01T00:00:00Z' } }).drill).toBe(
    'All is restored; but this drill is 31 days old',
  );
});

test('objects that are missing or damaged are named in both answers', () => {
  const bad = texts({ findings: { objects: 2, oldest: '2026-10-30T08:00:00Z' } });
  expect(bad.completeness).toContain('1.0 KiB, but 2 objects missing, different or unreadable in the bucket');
  expect(bad.verification).toMatch(/^2 objects missing, different or unreadable in the bucket since 2026-10-30; /);
});

test('an inventory is not proven by its signature if the bucket lost its manifest', () => {
  const of = (inBucket: NonNullable<Answers['inventory']>['inBucket']) =>
    texts({ inventory: { ...good.inventory!, inBucket } }).inventory;
  expect(of('missing')).toBe('The manifest of inventory 12 is missing in the bucket');
  expect(of('different')).toContain('differs from the one that was written');
  expect(of('unknown')).toContain('unknown whether the manifest is there');
});

test('without a drill, the answers of Assurance say when there will be one', () => {
  expect(texts({ drill: null }).drill).toContain('within a day of the first connection');
  expect(textsOf({ ...good, drill: null }, undefined).drill).toContain('DRILL_INTERVAL is off');
});
