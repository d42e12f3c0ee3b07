import { describe, expect, it } from 'vitest';
import {
  formatBytes,
  formatClock,
  formatDuration,
  parseDuration,
  parseSize,
  roughDuration,
} from '../../src/floor/units.ts';

const table = <In, Out>(name: string, call: (input: In) => Out, rows: [In, Out][]) =>
  describe(name, () => {
    for (const [input, output] of rows) it(`${name} ${input} is ${output}`, () => expect(call(input)).toBe(output));
  });

table<string, number | undefined>('the duration in ms of', parseDuration, [
  ['250ms', 250],
  ['90s', 90_000],
  ['5m', 300_000],
  ['1.5h', 5_400_000],
  ['1h30m', 5_400_000],
  ['1h 30m 5s', 5_405_000],
  ['2d', 172_800_000],
  ['1w', 604_800_000],
  ['0s', 0],
  ['', undefined],
  ['5', undefined],
  ['m', undefined],
  ['-5m', undefined],
  ['5 minutes', undefined],
  ['5M', undefined],
  ['1.h', undefined],
  ['Infinityh', undefined],
]);

table<string, number | undefined>('the size in bytes of', parseSize, [
  ['0B', 0],
  ['512B', 512],
  ['50MB', 50_000_000],
  ['16MiB', 16_777_216],
  ['1.5 GiB', 1_610_612_736],
  ['2tib', 2_199_023_255_552],
  ['1kb', 1000],
  ['', undefined],
  ['50', undefined],
  ['MiB', undefined],
  ['-1MB', undefined],
  ['50 Mbit', undefined],
  ['1iB', undefined],
]);

table('bytes for people:', formatBytes, [
  [0, '0 B'],
  [1023, '1023 B'],
  [1024, '1.0 KiB'],
  [1536, '1.5 KiB'],
  [150 * 1024, '150 KiB'],
  [1024 ** 2 - 1, '1.0 MiB'],
  [1.5 * 1024 ** 3, '1.5 GiB'],
  [3 * 1024 ** 5, '3072 TiB'],
]);

table('a time in a film, from ms:', formatClock, [
  [0, '0:00'],
  [83_999, '1:23'],
  [3_723_000, '1:02:03'],
]);

table('a duration in ms for people:', formatDuration, [
  [0, '0 ms'],
  [999.4, '999 ms'],
  [999.6, '1.0 s'],
  [12_340, '12.3 s'],
  [59_960, '1m 00s'],
  [245_000, '4m 05s'],
  [3_599_600, '1h 00m'],
  [12_000_000, '3h 20m'],
  [187_200_000, '2d 4h'],
]);

table<number, string>('as in the dashboard, the duration of', roughDuration, [
  [0, '0 s'],
  [408, 'under 1 s'],
  [1600, '2 s'],
  [240_000, '4 min'],
  [2 * 3_600_000, '2 h'],
  [3 * 86_400_000, '3 days'],
]);
