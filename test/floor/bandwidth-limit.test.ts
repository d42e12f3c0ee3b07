import { expect, test } from 'vitest';
import { bandwidthAt, parseBandwidth, timetableOf } from '../../src/floor/bandwidth-limit.ts';

const MiB = 2 ** 20;
const at = (text: string, time: string) => bandwidthAt(text, Date.parse(time));

test('a plain limit is a rate or unlimited, at any time', () => {
  for (const text of ['20MiB/s', ' 20 MiB/s ']) expect(parseBandwidth(text)).toEqual({ limit: 20 * MiB });
  for (const text of ['unlimited', 'off', 'Unlimited']) expect(parseBandwidth(text)).toEqual({ limit: 'unlimited' });
  expect([bandwidthAt(5), bandwidthAt('unlimited'), bandwidthAt(null), bandwidthAt(undefined)]).toEqual([
    5,
    null,
    null,
    null,
  ]);
  expect([timetableOf(5), timetableOf('unlimited'), timetableOf(null)]).toEqual([null, null, null]);
});

// 2026-01-05 is a Monday.
test.each<[string, string, number | null]>([
  ['Mon-Fri 08:00-18:00 10MiB/s, else unlimited', '2026-01-05T07:59:59Z', null],
  ['Mon-Fri 08:00-18:00 10MiB/s, else unlimited', '2026-01-05T08:00:00Z', 10],
  ['Mon-Fri 08:00-18:00 10MiB/s, else unlimited', '2026-01-09T17:59:59Z', 10],
  ['Mon-Fri 08:00-18:00 10MiB/s, else unlimited', '2026-01-09T18:00:00Z', null],
  ['Mon-Fri 08:00-18:00 10MiB/s, else unlimited', '2026-01-10T12:00:00Z', null],
  ['Mon-Fri 08:00-18:00 10MiB/s, else 2 MiB/s', '2026-01-10T12:00:00Z', 2],
  ['Mon-Fri 08:00–18:00 10MiB/s', '2026-01-10T12:00:00Z', null],
  ['mon 08:00-18:00 10MiB/s,else OFF', '2026-01-05T12:00:00Z', 10],
  // Without days, or without times.
  ['8:00-9:30 1MiB/s, else 2MiB/s', '2026-01-11T09:29:00Z', 1],
  ['Sat-Sun unlimited, else 2MiB/s', '2026-01-11T23:59:59Z', null],
  ['Sat-Sun unlimited, else 2MiB/s', '2026-01-12T00:00:00Z', 2],
  ['Sat-Mon 1MiB/s, else 2MiB/s', '2026-01-11T12:00:00Z', 1],
  ['Sat-Mon 1MiB/s, else 2MiB/s', '2026-01-06T12:00:00Z', 2],
  ['00:00-24:00 1MiB/s, else 2MiB/s', '2026-01-06T23:59:59Z', 1],
  // The first window that contains the time counts.
  ['Wed 12:00-13:00 1MiB/s, Mon-Fri 2MiB/s, else 3MiB/s', '2026-01-07T12:30:00Z', 1],
  ['Wed 12:00-13:00 1MiB/s, Mon-Fri 2MiB/s, else 3MiB/s', '2026-01-07T13:00:00Z', 2],
  // Over midnight.
  ['Fri 22:00-06:00 1MiB/s, else 2MiB/s', '2026-01-09T05:00:00Z', 2],
  ['Fri 22:00-06:00 1MiB/s, else 2MiB/s', '2026-01-09T22:00:00Z', 1],
  ['Fri 22:00-06:00 1MiB/s, else 2MiB/s', '2026-01-10T05:59:59Z', 1],
  ['Fri 22:00-06:00 1MiB/s, else 2MiB/s', '2026-01-10T06:00:00Z', 2],
  ['Fri 22:00-06:00 1MiB/s, else 2MiB/s', '2026-01-10T22:00:00Z', 2],
  ['22:00-06:00 1MiB/s, else 2MiB/s', '2026-01-11T00:00:00Z', 1],
  ['Sun 22:00-06:00 1MiB/s, else 2MiB/s', '2026-01-12T03:00:00Z', 1],
  // Time zones, in front or at the end.
  ['Europe/Berlin Mon 00:00-01:00 1MiB/s, else 2MiB/s', '2026-01-04T23:30:00Z', 1],
  ['Mon 00:00-01:00 1MiB/s, else 2MiB/s Europe/Berlin', '2026-01-04T23:30:00Z', 1],
  ['Europe/Berlin: Mon 00:00-01:00 1MiB/s', '2026-01-05T00:00:00Z', null],
  ['Sun 23:00-24:00 1MiB/s, else 2MiB/s, America/Argentina/Buenos_Aires', '2026-01-05T02:00:00Z', 1],
  ['09:00-17:00 1MiB/s, else 2MiB/s Asia/Kolkata', '2026-01-05T03:30:00Z', 1],
  ['09:00-17:00 1MiB/s, else 2MiB/s Asia/Kolkata', '2026-01-05T03:29:00Z', 2],
  ['09:00-17:00 1MiB/s UTC', '2026-01-05T09:00:00Z', 1],
])('%s at %s is %s MiB/s', (text, time, expected) => {
  expect(parseBandwidth(text)).toEqual({ limit: text.replace('–', '-') });
  expect(timetableOf(text)).toBe(text);
  expect(at(text, time)).toBe(expected === null ? null : expected * MiB);
});

test('a timetable follows the switch to daylight saving time and back', () => {
  const day = '08:00-18:00 1MiB/s Europe/Berlin';
  expect([at(day, '2026-03-28T06:30:00Z'), at(day, '2026-03-28T07:00:00Z')]).toEqual([null, MiB]);
  expect([at(day, '2026-03-29T05:59:59Z'), at(day, '2026-03-29T06:00:00Z')]).toEqual([null, MiB]);
  expect([at(day, '2026-10-25T06:59:59Z'), at(day, '2026-10-25T07:00:00Z')]).toEqual([null, MiB]);
  // In spring this hour does not exist, in autumn it comes twice.
  const night = 'Sun 02:00-03:00 1MiB/s Europe/Berlin';
  const hours = (date: string) =>
    [0, 0.5, 1, 1.5, 2].map((hour) => bandwidthAt(night, Date.parse(date) + hour * 3_600_000));
  expect(hours('2026-03-29T00:00Z')).toEqual([null, null, null, null, null]);
  expect(hours('2026-10-25T00:00Z')).toEqual([MiB, MiB, MiB, MiB, null]);
  // A window over midnight is an hour shorter, or longer.
  const over = 'Sat 22:00-04:00 1MiB/s Europe/Berlin';
  expect([at(over, '2026-03-29T01:59:59Z'), at(over, '2026-03-29T02:00:00Z')]).toEqual([MiB, null]);
  expect([at(over, '2026-10-25T02:59:59Z'), at(over, '2026-10-25T03:00:00Z')]).toEqual([MiB, null]);
});

test.each([
  ['20MiB', 'a rate such as 20MiB/s, or unlimited, or a timetable such as "Mon-Fri 08:00-18:00 10MiB/s, else'],
  ['', 'a rate such as 20MiB/s, or unlimited, or a timetable such as'],
  ['Mon-Fry 08:00-18:00 1MiB/s', 'a day or days such as Sat or Mon-Fri in place of "Mon-Fry"'],
  ['Mo 08:00-18:00 1MiB/s', 'in place of "Mo"'],
  ['Mon 08:00-25:00 1MiB/s', 'two times such as 08:00-18:00 in place of "08:00-25:00"'],
  ['Mon 08:60-09:00 1MiB/s', 'in place of "08:60-09:00"'],
  ['Mon 8-18 1MiB/s', 'in place of "8-18"'],
  ['08:00-08:00 1MiB/s', 'in place of "08:00-08:00"'],
  ['24:00-06:00 1MiB/s', 'in place of "24:00-06:00"'],
  ['Mon 08:00-18:00 10MiB', 'a rate such as 10MiB/s, or unlimited, in place of "10MiB"'],
  ['Mon 08:00-18:00 0B/s', 'in place of "0B/s"'],
  ['Mon 08:00-18:00', 'in place of "08:00-18:00"'],
  ['Mon 1MiB/s, else fast', 'in place of "fast"'],
  ['Mon 1MiB/s, else', 'in place of "else"'],
  ['else 1MiB/s, Mon 2MiB/s', 'in place of "else"'],
  ['Mon 1MiB/s, 2MiB/s', 'days or times and a rate, such as Mon-Fri 08:00-18:00 10MiB/s, in place of "2MiB/s"'],
  ['Mon 1MiB/s,, else 2MiB/s', 'in place of ""'],
  ['Mon 1MiB/s Europe/Atlantis', 'a time zone such as Europe/Berlin in place of "Europe/Atlantis"'],
  ['UTC Mon 1MiB/s Europe/Berlin', 'one time zone in place of "UTC … Europe/Berlin"'],
])('an error names the wrong part of %j', (text, expected) => {
  expect(parseBandwidth(text)).toEqual({ expected: expect.stringContaining(expected) });
});
