import { randomUUID } from 'node:crypto';
import { afterAll, expect, test } from 'vitest';
import { newStore } from '../store/records.ts';
import { ask } from '../support/database.ts';

const minute = 60_000;
const threeDays = 3 * 24 * 60 * minute;

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());
const query = (sql: string) => ask(opened.url, sql);
async function endpoint(id: string): Promise<string> {
  await store.endpoints.save(id, {
    url: `https://${id}.example.com/`,
    kinds: ['asset.mirrored'],
    sealed: null,
    description: null,
    filters: {},
    enabled: true,
  });
  return id;
}

test('the deliveries of an hour are given up together, so an endpoint that is down causes one event an hour', async () => {
  const endpointId = await endpoint('down');
  const addDelivery = (waitedMs: number) =>
    query(`INSERT INTO webhook_deliveries (id, endpoint_id, kind, at, data, waiting_since, next_at, error)
      VALUES ('${randomUUID()}', '${endpointId}', 'asset.mirrored', now(), '{}', now() - ${waitedMs} * interval '1 ms', now(),
        'the endpoint answered 503')`);
  const events = () => query("SELECT data FROM events WHERE kind = 'webhook.given_up' ORDER BY id");

  for (const minutes of [1, 20, 50]) await addDelivery(threeDays + minutes * minute);
  await addDelivery(threeDays - minute);
  expect(await store.webhooks.giveUp(threeDays)).toEqual([]);
  expect(await events()).toEqual([]);

  await addDelivery(threeDays + 61 * minute);
  const givenUp = { endpointId, kind: 'asset.mirrored', count: 4, reason: 'the endpoint answered 503' };
  expect(await store.webhooks.giveUp(threeDays)).toEqual([givenUp]);
  expect(await store.webhooks.giveUp(threeDays)).toEqual([]);
  expect(await events()).toEqual([{ data: givenUp }]);
  expect(await query("SELECT id FROM webhook_deliveries WHERE state = 'waiting'")).toHaveLength(1);
});

test('a message that arrives while it is given up counts as delivered', async () => {
  await endpoint('slow');
  await query(`INSERT INTO webhook_deliveries (id, endpoint_id, kind, at, data, waiting_since, next_at)
    VALUES ('late', 'slow', 'asset.mirrored', now(), '{}', now() - interval '4 days', now())`);
  const leased = (await store.webhooks.lease('slow', minute))!;
  expect(await store.webhooks.giveUp(threeDays)).toMatchObject([{ endpointId: 'slow', count: 1 }]);
  const state = async () => (await query(`SELECT state FROM webhook_deliveries WHERE id = 'late'`))[0]!.state;
  expect(await state()).toBe('failed');
  await store.webhooks.attempted(leased, { status: 503, ms: 5, error: 'the endpoint answered 503' });
  expect(await state()).toBe('failed');
  await store.webhooks.attempted(leased, { status: 200, ms: 5 });
  expect(await state()).toBe('delivered');
});
