import { expect, test } from 'vitest';
import { ResponseTimes } from '../../src/pacing/response-times.ts';

const answer = (answerMs: number) => ({ waitedMs: 0, answerMs });

test('with large files, one quick answer in half a minute is enough to try more assets at once', () => {
  const times = new ResponseTimes();
  expect(times.add(answer(100), 0)).toBeUndefined();
  const period = times.add(answer(100), 30_000)!;
  expect(times.judge(period, 1)).toBe('faster');
});

test('with large files, answers that take longer twice in a row lower the limit', () => {
  const times = new ResponseTimes();
  times.add(answer(100), 0);
  const verdicts = [100, 500, 500].map((ms, index) => times.judge(times.add(answer(ms), 30_000 * (index + 1))!, 16));
  expect(verdicts).toEqual(['faster', 'neither', 'slower']);
});
