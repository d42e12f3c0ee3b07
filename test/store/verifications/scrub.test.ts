import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { newStoreAndClient, running } from '../records.ts';

/** In ms. Long, so that a pause between two statements changes no rate. */
const cycle = 100_000_000;
const count = 1000;
/** Bytes of each file, and its weight in the rate. */
const bytes = 2 ** 20;
const weight = 2 * bytes;

const opened = await newStoreAndClient();
const { client } = opened;
beforeAll(async () => {
  const { connectionId } = await running(opened.store, 'acme');
  await client.query(
    `INSERT INTO assets (id, connection_id, company_id, listed, state, mirrored_at, media, bytes)
     SELECT 'file ' || i, $1, 'acme', '{}', 'mirrored', now(), '{}', $3 FROM generate_series(0, $2::int - 1) AS i`,
    [connectionId, count, bytes],
  );
  await opened.store.scrub.take('test', 600_000);
});
beforeEach(async () => {
  await client.query('UPDATE assets SET verified_at = now(), unverifiable_at = NULL');
});
afterAll(() => opened.close());

/** The rate, compared with that of the whole mirror in one cycle. */
async function rate(ages: string): Promise<number> {
  await client.query(
    `UPDATE assets SET verified_at = now() - (${ages}) * interval '1 ms' FROM (SELECT id, substr(id, 6)::int AS i FROM assets) AS it
     WHERE it.id = assets.id`,
  );
  const { rate } = (await opened.store.scrub.plan('test', cycle))!;
  return rate / ((count * weight) / cycle);
}

test('files that were stored at the same time are spread over the whole cycle', async () => {
  expect(await rate('0')).toBeCloseTo(1, 1);
});

test('files whose verifications are spread over the cycle are read at the same rate', async () => {
  expect(await rate(`i * ${cycle / count}`)).toBeCloseTo(1, 1);
});

test('files that are still to be read are spread over the rest of the cycle', async () => {
  // Half of the cycle is over, and nothing was read.
  expect(await rate(`${cycle / 2}`)).toBeCloseTo(2, 0);
});

test('overdue files are read within a twentieth of the cycle, and not at once', async () => {
  expect(await rate(`CASE WHEN i < 50 THEN ${2 * cycle} ELSE i * ${cycle / count} / 2 END`)).toBeCloseTo(1, 0);
  expect(await rate(`${2 * cycle}`)).toBeCloseTo(20, 0);
});

test('files that cannot be verified cost requests only, and do not count as the oldest', async () => {
  await client.query(
    `UPDATE assets SET unverifiable_at = now(), verified_at = now() - interval '1 year' WHERE id < 'file 5'`,
  );
  const { unverifiable, bytesPerSecond } = (await opened.store.scrub.plan('test', cycle))!;
  expect(unverifiable).toBe(445);
  expect(bytesPerSecond / ((555 * bytes) / (cycle / 1000))).toBeCloseTo(1, 1);
  const { oldest } = await opened.store.scrub.progress();
  expect(Date.now() - oldest!.getTime()).toBeLessThan(60_000);
});

test('the next file is the longest unverified one, without those that are left alone', async () => {
  await client.query(`UPDATE assets SET verified_at = now() - interval '2 days' WHERE id = 'file 7'`);
  await client.query(
    `UPDATE assets SET verified_at = NULL, mirrored_at = now() - interval '1 day' WHERE id = 'file 9'`,
  );
  const { scrub } = opened.store;
  expect(await scrub.next([])).toMatchObject({ id: 'file 7', weight });
  expect(await scrub.next(['file 7'])).toMatchObject({ id: 'file 9' });
});
