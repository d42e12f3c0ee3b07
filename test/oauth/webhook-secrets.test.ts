import { expect, test } from 'vitest';
import { newWebhookSecret, validSecrets, withSecret } from '../../src/oauth/webhook-secrets.ts';

const day = 86_400_000;
const signing = (webhook: Parameters<typeof validSecrets>[0], now: number) =>
  validSecrets(webhook, now).map(({ secret }) => secret);

test('a replaced secret of a webhook endpoint signs for 24 hours after the newest one, and no longer', () => {
  const first = { url: 'https://hooks.example.com', secrets: [{ secret: 'first' }] };
  const second = withSecret(first, 'second', 0);
  expect(signing(second, day - 1)).toEqual(['second', 'first']);
  expect(signing(second, day)).toEqual(['second']);
  const third = withSecret(second, 'third', day / 2);
  expect(signing(third, day - 1)).toEqual(['third', 'second', 'first']);
  expect(signing(third, day)).toEqual(['third', 'second']);
  expect(signing(third, 2 * day)).toEqual(['third']);
  // A message has at most three signatures.
  expect(signing(withSecret(third, 'fourth', day - 1), day - 1)).toEqual(['fourth', 'third', 'second']);
  expect(newWebhookSecret()).not.toBe(newWebhookSecret());
});
