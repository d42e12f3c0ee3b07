import { rename } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createBucketBreaker } from '../../src/pacing/breakers.ts';
import { startHeartbeat } from '../../src/webhooks/heartbeat.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

let stage: Stage;
let server: Server;
let status = 200;
const calls: { url: string; method: string; body: string }[] = [];
const stops: (() => Promise<void>)[] = [];
beforeAll(async () => {
  stage = await newStage();
  server = createServer(async (request, response) => {
    calls.push({ url: request.url!, method: request.method!, body: await text(request) });
    response.writeHead(status).end('ok');
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
});
afterAll(async () => {
  for (const stop of stops) await stop();
  server?.close();
  await stage?.close();
});

/** As two processes do that have no other work. */
function beat(interval = 200) {
  const { context } = stage.mirror.service;
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/ping/secret?rid=1`;
  const both = [1, 2].map(() => {
    const breaker = createBucketBreaker({ ...context, onChange() {} });
    const heartbeat = startHeartbeat(
      { ...context, url, syncInterval: 300_000, bucketTrouble: breaker.check },
      interval,
    );
    return { breaker, heartbeat };
  });
  const stop = async () => {
    await Promise.all(both.flatMap(({ breaker, heartbeat }) => [breaker.stop(), heartbeat.stop()]));
  };
  stops.push(stop);
  return stop;
}
const next = async () => {
  const before = calls.length;
  return until('a call', () => calls.length > before && calls[before]!);
};

test('the heartbeat is called while all is well, once for all processes, and gets the reason otherwise', {
  tags: 'slow',
}, async () => {
  const { connectionId } = await stage.company();
  const stop = beat();
  expect(await next()).toEqual({ url: '/ping/secret?rid=1', method: 'POST', body: '' });
  const [from, began] = [calls.length, performance.now()];
  await until('twenty calls', () => calls.length >= from + 20);
  // If each process called by itself, they would take two seconds.
  expect(performance.now() - began).toBeGreaterThan(20 * 200 * 0.9 - 1000);

  await stage.query(
    `UPDATE connections SET connected_at = now() - interval '1 day', last_sync_at = now() - interval '2 hours'`,
  );
  const late = {
    url: '/ping/secret/fail?rid=1',
    method: 'POST',
    body: `not synced in time: 1 connection: ${connectionId}`,
  };
  await until('a late connection', () => calls.at(-1)?.url.includes('/fail') && calls.at(-1));
  expect(calls.at(-1)).toEqual(late);
  await stage.query(`UPDATE connections SET status = 'paused'`);
  await until('only active connections to count', () => calls.at(-1)?.body === '');

  const directory = stage.ground.environment.STORAGE_URL!.slice('file://'.length);
  await rename(directory, `${directory}.aside`);
  await until('the bucket to be missed', () => calls.at(-1)?.url.includes('/fail'));
  expect(calls.at(-1)!.body).toContain(directory);
  await rename(`${directory}.aside`, directory);
  await until('the bucket to work again', () => calls.at(-1)?.body === '');
  await stop();
});

test('the heartbeat is called again soon after the clock of the database was ahead', async () => {
  const stop = beat();
  await next();
  await stage.query(`UPDATE chores SET due_at = now() + interval '1 hour' WHERE name = 'heartbeat'`);
  await next();
  await stop();
});

test('a heartbeat that is not accepted is logged once, without its address', async () => {
  status = 500;
  const stop = beat();
  const from = calls.length;
  await until('three calls', () => calls.length >= from + 3);
  await stop();
  const lines = stage.ground.logs.flatMap((log) => log()).filter((line) => line.includes('heartbeat_url.failed'));
  expect(lines.length).toBeGreaterThan(0);
  expect(lines.length).toBeLessThanOrEqual(2);
  expect(lines[0]).toContain('HEARTBEAT_URL answered 500');
  expect(lines.join()).not.toContain('/ping/secret');
});
