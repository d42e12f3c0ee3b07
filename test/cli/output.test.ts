import { expect, test, vi } from 'vitest';
import { agoShort, bar, type Column, clean, cut, harmless, jsonOf, speed, table, width } from '../../src/cli/output.ts';
import { doctor } from '../../src/cli/verbs/doctor.ts';
import { runReported } from '../../src/cli/work-report.ts';
import type { Finding } from '../../src/floor/finding.ts';

const columns: Column[] = [
  { title: 'ID' },
  { title: 'NAME', least: 6 },
  { title: 'SIZE', right: true, spare: 1 },
  { title: 'MORE', least: 4, spare: 2 },
];
const rows = [
  ['a1', 'a rather long name', '5', 'and some more'],
  ['b22', 'short', '1,234', ''],
];

test.each([
  [
    80,
    [
      'ID   NAME                 SIZE  MORE',
      'a1   a rather long name      5  and some more',
      'b22  short               1,234',
    ],
  ],
  [30, ['ID   NAME       SIZE  MORE', 'a1   a rathe…      5  and som…', 'b22  short     1,234']],
  [20, ['ID   NAME       SIZE', 'a1   a rathe…      5', 'b22  short     1,234']],
  [12, ['ID   NAME', 'a1   a rath…', 'b22  short']],
  [5, ['ID   NAME', 'a1   a rat…', 'b22  short']],
])('a table fits into %i columns', (space, lines) => {
  expect(table(columns, rows, space)).toBe(lines.join('\n'));
});

test('a table is as narrow as its space while its columns can shrink', () => {
  for (let space = 12; space < 60; space++) {
    for (const line of table(columns, rows, space).split('\n'))
      expect(width(line), `${space}`).toBeLessThanOrEqual(space);
  }
});

test.each([
  ['plain', 5],
  ['\u001b[31mred\u001b[39m', 3],
  ['é', 1],
  ['日本語', 6],
  ['👩‍👩‍👧', 2],
  ['', 0],
])('the text %j takes %i columns', (text, columns) => {
  expect(width(text)).toBe(columns);
});

test.each([
  ['long name', 5, 'long…'],
  ['short', 5, 'short'],
  ['日本語', 4, '日…'],
  ['ab', 1, '…'],
  ['ab', 0, ''],
])('the text %j in %i columns is cut to %j', (text, space, expected) => {
  expect(cut(text, space)).toBe(expected);
});

test('names from the library cannot move the cursor, hide or add lines', () => {
  expect(harmless('a\nb\u001b[2Jc\u202ed\u2028e')).toBe('a\\u{a}b\\u{1b}[2Jc\\u{202e}d\\u{2028}e');
});

/** It sets the title, rings, clears by a C1 control, hides, returns the cursor and turns the direction of text. */
const hostile = 'x\u001b]0;t\u0007\u009b2J\u001b[8m\r\u202ey';
const shown = 'x\\u{1b}]0;t\\u{7}\\u{9b}2J\\u{1b}[8m\\u{d}\\u{202e}y';

test('printed text has no control characters except line ends and our own colours', () => {
  expect(clean(`\u001b[1m\u001b[31mred\u001b[39m\u001b[22m\n${hostile}`)).toBe(
    `\u001b[1m\u001b[31mred\u001b[39m\u001b[22m\n${shown}`,
  );
});

test('each cell of a table is one line without control characters', () => {
  const columns = [{ title: 'NAME' }, { title: 'STATE' }];
  const [, row, ...more] = table(columns, [[`${hostile}\n`, { text: hostile, style: 'red' }]], 200).split('\n');
  expect(clean(row!)).toContain(`${shown}\\u{a}`);
  expect(row).not.toMatch(/\u0007|\u009b|\u202e|\r/);
  expect(more).toEqual([]);
});

test.each([
  [
    'doctor',
    () => doctor(of({ area: 'bucket', what: hostile, found: hostile, remedy: hostile, level: 'wrong' } as Finding), {}),
  ],
  [
    'a verb that needs no service',
    () =>
      runReported(
        async (report) => {
          report.start(hostile);
          report.problem(hostile);
          return { total: 0 };
        },
        { json: false, initial: { total: 0 }, lineOf: () => '', summaryOf: () => '' },
      ),
  ],
])('%s prints no control characters from the library', async (_, verb) => {
  let printed = '';
  const stdout = vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed += text;
    return true;
  });
  await verb().finally(() => stdout.mockRestore());
  expect(printed).toContain(shown);
  expect(printed).toBe(clean(printed));
});

async function* of<T>(...values: T[]): AsyncGenerator<T> {
  yield* values;
}

test('JSON for terminals escapes control characters, and has the same content', () => {
  const value = { name: hostile, 'a\u0085b': ['\u2028', 'plain'] };
  for (const indent of [undefined, 2]) {
    const text = jsonOf(value, indent);
    expect(text).toBe(clean(text));
    expect(JSON.parse(text)).toEqual(value);
  }
});

test('a progress bar is as full as the work is done, and never fuller', () => {
  expect([bar(0, 0, 4), bar(1, 2, 4), bar(9, 4, 4)]).toEqual(['░░░░', '██░░', '████']);
});

test('times in tables of the command line are short', () => {
  expect(agoShort(null)).toBe('–');
  expect(agoShort(new Date(Date.now() - 7_200_000).toISOString())).toBe('2h ago');
});

test('rate and time left are printed once they are known', () => {
  expect(speed({ done: 50, left: 100, ms: 1000 })).toBe('');
  expect(speed({ done: 0, left: 100, ms: 60_000 })).toBe('');
  expect(speed({ done: 500, left: 1000, ms: 10_000 })).toBe('50/s, 20.0 s left');
  expect(speed({ done: 15, left: 0, ms: 10_000 })).toBe('1.5/s');
});
