import { expect, test } from 'vitest';
import { timelineOf } from '../../src/operations/assets/timeline.ts';

const at = new Date('2026-01-31T12:00:00Z');
const asset = { firstSeenAt: at, mirroredAt: at, verifiedAt: null, syncId: null };
const event = (kind: string, data: object = {}) => ({
  id: 1,
  at,
  kind,
  connectionId: 'c1',
  assetId: 'a1',
  data: { ...data },
});

test('a timeline tells events in words, and the outcome of an attempt once', () => {
  const events = [
    event('asset.failed', { reason: 'no file' }),
    event('asset.mirrored', { key: 'k', bytes: 1 }),
    event('asset.conflict', { companyId: 'beta', recordedFor: 'acme' }),
    event('asset.gone'),
    event('operator.retryAsset', { by: { name: 'ada@example.com' }, outcome: 'done' }),
    event('operator.retryAsset', {
      by: { name: 'ada@example.com' },
      outcome: 'refused',
      reason: 'The asset is no longer in the library.',
    }),
  ];
  expect(timelineOf(asset, [], events).map(({ text }) => text)).toEqual([
    'seen for the first time',
    'mirrored',
    'company beta lists another asset with this id, which was recorded for company acme',
    'no longer in the library',
    'ada@example.com retried it',
    'ada@example.com tried to retry it. Refused: The asset is no longer in the library.',
  ]);
});
