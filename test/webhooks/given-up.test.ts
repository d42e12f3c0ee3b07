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

test('the deliveries of an hour are given up together, so an endpoint that is down causes one event an hour', async () => {
  const endpointId = 'down';
  await store.endpoints.save(endpointId, {
    url: 'https://down.example.com/',
    kinds: ['asset.mirrored'],
    sealed: null,
    description: null,
    filters: {},
    enabled: true,
  });
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
