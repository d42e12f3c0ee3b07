import { expect, test } from 'vitest';
import { RequestRate } from '../../src/pacing/request-rate.ts';

const second = 1000;

/** Lets the library answer evenly, `perSecond` times a second, from one time to another. */
function answers(rate: RequestRate, perSecond: number, from: number, to: number): void {
  for (let at = from; at < to; at += second / perSecond) rate.answered(at);
}

/** How many requests may be sent in a second. */
function allowed(rate: RequestRate, now: number): number {
  let count = 0;
  while (rate.reserve(now) < second) count++;
  return count;
}

test('requests do not wait before the library has refused one', () => {
  const rate = new RequestRate();
  answers(rate, 1000, 0, 10 * second);
  expect(rate.reserve(10 * second)).toBe(0);
});

test('between two refusals the library answered as many requests as it allows, and a little less is sent', () => {
  const rate = new RequestRate();
  answers(rate, 200, 0, second);
  rate.refused(second);
  answers(rate, 60, second, 6 * second);
  rate.refused(6 * second);
  // 85 % of 60, and the fifth of a second that may be caught up.
  expect(allowed(rate, 6 * second)).toBeGreaterThan(50);
  expect(allowed(rate, 6 * second)).toBeLessThan(65);
});

test('refusals of requests that were in flight together count once', () => {
  const rate = new RequestRate();
  answers(rate, 100, 0, 2 * second);
  for (let i = 0; i < 50; i++) rate.refused(2 * second + i);
  expect(allowed(rate, 2 * second)).toBeGreaterThan(80);
});

test('the rate grows again after a refusal, and a refusal long after it begins with what was answered lately', () => {
  const rate = new RequestRate();
  answers(rate, 60, 0, 3 * second);
  rate.refused(3 * second);
  expect(allowed(rate, 43 * second)).toBeGreaterThan(60);
  const later = 600 * second;
  answers(rate, 60, later, later + 3 * second);
  rate.refused(later + 3 * second);
  expect(allowed(rate, later + 3 * second)).toBeLessThan(70);
});

test('a request that would wait long reserves nothing, so that it can be sent once the library allows more', () => {
  const rate = new RequestRate();
  answers(rate, 10, 0, second);
  rate.refused(second);
  while (rate.reserve(second, 5 * second) < Number.POSITIVE_INFINITY);
  for (let i = 0; i < 100; i++) expect(rate.reserve(second, 5 * second)).toBe(Number.POSITIVE_INFINITY);
  expect(rate.reserve(6 * second, 5 * second)).toBeLessThan(second);
});

test('a connection that another one leaves no requests keeps a small rate', () => {
  const rate = new RequestRate();
  rate.refused(0);
  for (let at = 2 * second; at < 20 * second; at += 2 * second) rate.refused(at);
  expect(allowed(rate, 40 * second)).toBeGreaterThan(0);
});

test('connections that are refused together get the same rate, but not those that send little', () => {
  const [busy, other, idle] = [new RequestRate(), new RequestRate(), new RequestRate()];
  answers(busy, 100, 0, 3 * second);
  answers(other, 20, 0, 3 * second);
  answers(idle, 1, 0, 3 * second);
  const rates = [busy, other, idle];
  for (const rate of rates) rate.refused(3 * second);
  RequestRate.share(rates, 3 * second);
  const counts = rates.map((rate) => allowed(rate, 3 * second));
  expect(counts[0]).toBe(counts[1]);
  expect(counts[0]).toBeGreaterThan(40);
  expect(counts[2]).toBeLessThan(10);
});

test('a connection that was refused alone keeps its rate when others are refused later', () => {
  const [busy, other] = [new RequestRate(), new RequestRate()];
  answers(busy, 100, 0, 3 * second);
  busy.refused(3 * second);
  answers(other, 20, 6 * second, 9 * second);
  other.refused(9 * second);
  RequestRate.share([busy, other], 9 * second);
  expect(allowed(other, 9 * second)).toBeLessThan(25);
});
