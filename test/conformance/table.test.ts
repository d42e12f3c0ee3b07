import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { MUTATIONS } from './mutations/index.ts';
import { CHECKS } from './sections/index.ts';

const ROOT = join(import.meta.dirname, '../..');

const SECTIONS = '1 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 3.1 3.2 4 4.1 4.2 4.3 4.4 4.5 4.6 4.7 4.8 5 6 7 8 9'.split(' ');

const rows = readFileSync(join(import.meta.dirname, 'README.md'), 'utf8')
  .split('\n')
  .flatMap((line) => {
    const [, section = '', says = '', where = '', tests = '', checks = ''] = line.split('|').map((cell) => cell.trim());
    const isRow = /^\d/.test(section);
    return isRow ? [{ section, says, where: named(where), tests: named(tests), checks: named(checks) }] : [];
  });

function named(cell: string): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name!);
}

it('the table of the specification has every section, in order', () => {
  expect([...new Set(rows.map(({ section }) => section))]).toEqual(SECTIONS);
});

it('every file in the table of the specification exists', () => {
  const files = rows.flatMap(({ where, tests }) => [
    ...where.map((file) => `src/library/${file}`),
    ...tests.map((file) => `test/library/${file}`),
  ]);
  expect(files.filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
});

it('the table of the specification names every check, and no other', () => {
  const inTable = rows.flatMap(({ checks }) => checks);
  expect([...new Set(inTable)].sort()).toEqual(CHECKS.map(({ id }) => id).sort());
});

it('every check is in its section of the table', () => {
  const astray = CHECKS.filter(
    ({ id, section }) => !rows.some((row) => row.section === section && row.checks.includes(id)),
  );
  expect(astray.map(({ id, section }) => `${section} ${id}`)).toEqual([]);
});

it('every sentence of the specification that has code has a test and a check', () => {
  const bare = rows.filter(
    ({ where, tests, checks }) => where.length > 0 && (tests.length === 0 || checks.length === 0),
  );
  expect(bare).toEqual([]);
});

it('every conformance check has a mutation that it detects (mutations.test.ts)', () => {
  const tried = new Set(MUTATIONS.map(({ check }) => check));
  expect(CHECKS.map(({ id }) => id).filter((id) => !tried.has(id))).toEqual([]);
});
