import { expect, test } from 'vitest';
import { dayMs } from '../../src/floor/units.ts';
import { questionsOf } from '../../src/operations/assurance/assurance-questions.ts';

type Answers = Parameters<typeof questionsOf>[0];

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
  completeness: { ok: true, expected: 3000, mirrored: 3000, bytes: 1024 },
  onlyInLibrary: { ok: true, assets: 0, bytes: 0, unknownSize: 0, since: null },
  freshness: { ok: true, connections: 2, late: 0, neverSynced: 0, oldestSync: null },
  findings: { objects: 0, oldest: null },
  verification: { ok: true, cycle: 90 * dayMs, oldest: null, onTime: true, unverifiable: 0 },
  inventory: {
    ok: true,
    number: 12,
    day: '2026-11-01',
    writtenAt: '2026-11-01T00:10:00Z',
    keyId: 'ab',
    inBucket: 'same',
  },
  drill,
};
const questions = (answers: Partial<Answers>, interval?: number) => questionsOf({ ...good, ...answers }, interval);
const texts = (answers: Partial<Answers>, interval?: number) =>
  Object.fromEntries(questions(answers, interval).map(({ code, text }) => [code, text]));

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
  expect(texts({ completeness: { ...good.completeness, ok: false, mirrored: 2999 } }).completeness).toContain(
    '(99.9 %)',
  );
  expect(
    texts({ onlyInLibrary: { ...good.onlyInLibrary, assets: 2, bytes: 1024, unknownSize: 1 } }).onlyInLibrary,
  ).toBe('1.0 KiB in 2 assets, 1 of them of unknown size');
  expect(texts({ freshness: { ...good.freshness, late: 1 } }).freshness).toBe(
    '1 of 2 active connections not synced in time',
  );
  const fresh = texts({ freshness: { ...good.freshness, neverSynced: 1 } });
  expect(fresh.freshness).toBe('The first sync of 1 of 2 active connections has not ended');
  expect(fresh.onlyInLibrary).toBe('Nothing that is known: the first sync has not ended');
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

test('a question names the problem that is known, and the date of its answer', () => {
  const problems = (answers: Partial<Answers>) =>
    Object.fromEntries(questions(answers).map(({ code, problem }) => [code, problem]));
  const none = {
    completeness: null,
    onlyInLibrary: null,
    freshness: null,
    verification: null,
    inventory: null,
    drill: null,
  };
  expect(problems({})).toEqual(none);
  expect(problems({ inventory: null, drill: null })).toEqual(none);
  expect(problems({ findings: { objects: 1, oldest: good.at } })).toEqual({
    ...none,
    completeness: 'Damaged',
    verification: 'Damaged',
  });
  expect(problems({ inventory: { ...good.inventory!, inBucket: 'unknown' } })).toEqual(none);
  expect(problems({ inventory: { ...good.inventory!, inBucket: 'different' } }).inventory).toBe('Differs');
  expect(problems({ drill: { ...drill, status: 'failed' } }).drill).toBe('Failed');
  const [, onlyInLibrary, freshness] = questions({
    onlyInLibrary: { ...good.onlyInLibrary, since: '2026-10-31T00:00:00Z' },
  });
  expect(onlyInLibrary).toMatchObject({ at: '2026-10-31T00:00:00Z', note: 'the oldest of them was found' });
  expect(freshness).toMatchObject({ at: null, note: null });
});

test('an inventory is not proven by its signature if the bucket lost its manifest', () => {
  const of = (inBucket: NonNullable<Answers['inventory']>['inBucket']) =>
    texts({ inventory: { ...good.inventory!, inBucket } }).inventory;
  expect(of('missing')).toBe('The manifest of inventory 12 is missing in the bucket');
  expect(of('different')).toContain('differs from the one that was written');
  expect(of('unknown')).toContain('unknown whether the manifest is there');
});

test('without a drill, the answers of Assurance say when there will be one', () => {
  expect(texts({ drill: null }, 7 * dayMs).drill).toContain('within a day of the first connection');
  expect(texts({ drill: null }).drill).toContain('DRILL_INTERVAL is off');
});
