import { afterAll, expect, test } from 'vitest';
import { dayMs } from '../../../src/floor/units.ts';
import { newStoreAndClient } from '../records.ts';

const opened = await newStoreAndClient();
const { checksumSupport } = opened.store;
afterAll(() => opened.close());

test.each([1, -1])('how a store proves its objects is forgotten if that was found %i days from now', async (days) => {
  await checksumSupport.keep('s3://one', 'sha256');
  await checksumSupport.keep('s3://two', 'crc32');
  await opened.client.query(
    `UPDATE settings SET value = jsonb_set(value, '{at}', $1) WHERE name = 'checksums of s3://two'`,
    [Date.now() + days * dayMs * 1.01],
  );
  expect(await checksumSupport.recall('s3://one')).toBe('sha256');
  expect(await checksumSupport.recall('s3://two')).toBeUndefined();
});
