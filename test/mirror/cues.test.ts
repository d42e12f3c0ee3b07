import { expect, test } from 'vitest';
import { passagesOf } from '../../src/mirror/cues.ts';

const cue = (start: string, text: string) => `${start} --> 99:00:00.000\n${text}\n\n`;

test('each cue becomes a line with its start, without tags, and short ones are joined', () => {
  const vtt = `WEBVTT - with a title\nLanguage: en\n\nNOTE\nnot said\n\nSTYLE\n::cue { color: red }\n\n1\n${cue(
    '00:01.000',
    '<v Ann>Good <b>morning</b> &amp; welcome,\nto all of you who are here!',
  )}${cue('0:00:05,500', 'Well')}${cue('00:00:06.000', 'let us begin with the first item of today.')}${cue('01:02:03.004', 'Bye.')}`;
  expect(passagesOf(vtt)).toEqual([
    {
      starts: [1000, 5500, 3_723_004],
      lines: [
        'Good morning & welcome, to all of you who are here!',
        'Well let us begin with the first item of today.',
        'Bye.',
      ],
    },
  ]);
});

test('a passage ends with the beginning of the next one', () => {
  const vtt = Array.from({ length: 100 }, (_, i) =>
    cue(`00:${String(i % 60).padStart(2, '0')}.000`, `This is the line with the number ${i}, which is long.`),
  ).join('');
  const passages = passagesOf(vtt);
  expect(passages.length).toBeGreaterThan(3);
  for (const [index, { lines }] of passages.slice(1).entries()) expect(passages[index]!.lines).toContain(lines[0]);
  expect(new Set(passages.flatMap(({ lines }) => lines)).size).toBe(100);
});

test.each([
  ['nothing', ''],
  ['no WebVTT', '{"error": "not found"}'],
  ['no text', cue('00:01.000', ' \u0000<b></b>\t')],
  ['no valid time', cue('soon', 'a') + cue('00:61:99', 'b') + cue('99999:00:00.000', 'c') + cue('-00:01.000', 'd')],
])('a file with %s has no passages', (_, vtt) => expect(passagesOf(vtt)).toEqual([]));

test.each([
  ['opening tags', cue('00:01.000', '<'.repeat(4_000_000))],
  ['ampersands', cue('00:01.000', '&'.repeat(4_000_000))],
  ['line ends', `${cue('00:01.000', 'a')}${'\n'.repeat(4_000_000)}`],
  ['spaces before an arrow', `${' '.repeat(4_000_000)}-->\na`],
  ['cues without an end', '00:01.000 -->\n'.repeat(300_000)],
  ['cues of one letter', cue('00:01.000', 'a').repeat(100_000)],
  ['one word', cue('00:01.000', 'a'.repeat(8_000_000))],
  ['lines of one cue', `00:01.000 -->\n${`${'word '.repeat(50)}\n`.repeat(30_000)}`],
])('millions of %s take no long time and no much space', { tags: 'slow' }, (_, vtt) => {
  const before = process.cpuUsage();
  const passages = passagesOf(vtt);
  const { user, system } = process.cpuUsage(before);
  // In microseconds of processor time: a busy machine does not matter.
  expect(user + system).toBeLessThan(5_000_000);
  expect(JSON.stringify(passages).length).toBeLessThan(3_000_000);
});
