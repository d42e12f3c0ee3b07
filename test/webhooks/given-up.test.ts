import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Store } from '../../src/store/store.ts';
import { newStore } from '../store/records.ts';

const minute = 60_000;
const threeDays = 3 * 24 * 60 * minute;

let opened: Awaited<ReturnType<typeof newStore>>;
let store: Store;
let database: pg.Pool;
beforeAll(async () => {
  opened = await newStore();
  store = opened.store;
  database = new pg.Pool({ connectionString: opened.url, max: 1 });
});
afterAll(async () => {
  await database?.end();
  await opened?.close();
});

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
    database.query(
      `INSERT INTO webhook_deliveries (id, endpoint_id, kind, at, data, waiting_since, next_at, error)
       VALUES ($1, $2, 'asset.mirrored', now(), '{}', now() - $3 * interval '1 ms', now(), 'the endpoint answered 503')`,
      [randomUUID(), endpointId, waitedMs],
    );
  const events = async () =>
    (await database.query("SELECT data FROM events WHERE kind = 'webhook.given_up' ORDER BY id")).rows;

  for (const minutes of [1, 20, 50]) await addDelivery(threeDays + minutes * minute);
  await addDelivery(threeDays - minute);
  expect(await store.webhooks.giveUp(threeDays)).toEqual([]);
  expect(await events()).toEqual([]);

  await addDelivery(threeDays + 61 * minute);
  const givenUp = { endpointId, kind: 'asset.mirrored', count: 4, reason: 'the endpoint answered 503' };
  expect(await store.webhooks.giveUp(threeDays)).toEqual([givenUp]);
  expect(await store.webhooks.giveUp(threeDays)).toEqual([]);
  expect(await events()).toEqual([{ data: givenUp }]);
  const { rows } = await database.query("SELECT FROM webhook_deliveries WHERE state = 'waiting'");
  expect(rows).toHaveLength(1);
});
