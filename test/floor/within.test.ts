import { expect, test } from 'vitest';
import { answerWithin, NoAnswer } from '../../src/floor/within.ts';

test('an answer in time is returned, also if it is undefined', async () => {
  expect(await answerWithin(1000, async () => 'answer')).toBe('answer');
  expect(await answerWithin(1000, async () => undefined)).toBeUndefined();
});

test('an error in time is thrown as it is', async () => {
  const failure = new Error('refused');
  await expect(answerWithin(1000, () => Promise.reject(failure))).rejects.toBe(failure);
});

test('without an answer, the signal is aborted, and the error says how long it took', async () => {
  let late: AbortSignal | undefined;
  const never = (signal: AbortSignal) => {
    late = signal;
    return new Promise<never>(() => {});
  };
  await expect(answerWithin(20, never)).rejects.toThrow(new NoAnswer('no answer within 0.02 s'));
  expect(late?.aborted).toBe(true);
});
