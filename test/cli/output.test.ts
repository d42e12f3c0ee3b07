import { expect, test } from 'vitest';
import { agoShort, bar, type Column, cut, harmless, speed, table, width } from '../../src/cli/output.ts';

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
])('a table in %i columns', (room, lines) => {
  expect(table(columns, rows, room)).toBe(lines.join('\n'));
});

test('a table is never wider than its room while anything can give way', () => {
  for (let room = 12; room < 60; room++) {
    for (const line of table(columns, rows, room).split('\n')) expect(width(line), `${room}`).toBeLessThanOrEqual(room);
  }
});

test.each([
  ['plain', 5],
  ['\u001b[31mred\u001b[39m', 3],
  ['é', 1],
  ['日本語', 6],
  ['👩‍👩‍👧', 2],
  ['', 0],
])('%j takes %i columns', (text, columns) => {
  expect(width(text)).toBe(columns);
});

test.each([
  ['long name', 5, 'long…'],
  ['short', 5, 'short'],
  ['日本語', 4, '日…'],
  ['ab', 1, '…'],
  ['ab', 0, ''],
])('%j in %i columns is %j', (text, room, expected) => {
  expect(cut(text, room)).toBe(expected);
});

test('what others name cannot move the cursor, hide, or make up lines', () => {
  expect(harmless('a\nb\u001b[2Jc\u202ed\u2028e')).toBe('a\\u{a}b\\u{1b}[2Jc\\u{202e}d\\u{2028}e');
});

test('a bar is as full as the work is done, and never fuller', () => {
  expect([bar(0, 0, 4), bar(1, 2, 4), bar(9, 4, 4)]).toEqual(['░░░░', '██░░', '████']);
});

test('times are short in tables', () => {
  expect(agoShort(null)).toBe('–');
  expect(agoShort(new Date(Date.now() - 7_200_000).toISOString())).toBe('2h ago');
});

test('how fast it goes, and for how long still, is said once it is known', () => {
  expect(speed({ done: 50, left: 100, ms: 1000 })).toBe('');
  expect(speed({ done: 0, left: 100, ms: 60_000 })).toBe('');
  expect(speed({ done: 500, left: 1000, ms: 10_000 })).toBe('50/s, 20.0 s left');
  expect(speed({ done: 15, left: 0, ms: 10_000 })).toBe('1.5/s');
});
