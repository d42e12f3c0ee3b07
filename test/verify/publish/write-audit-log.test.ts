import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { writeAuditLog } from '../../../src/verify/publish/write-audit-log.ts';
import { contentOf } from '../../support/mirror.ts';
import { newStage, type Stage } from '../../support/stage.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

const ada = { subject: 'ada', name: 'ada@example.com', role: 'admin', method: 'oidc' } as const;
const log = { info: () => {} } as never;
const file = () =>
  writeAuditLog({ store: stage.mirror.store, storage: stage.ground.storage, log }, new AbortController().signal);
const lines = async (day: string) =>
  gunzipSync((await contentOf(stage.ground.storage, `_mirror/audit/${day}.jsonl.gz`))!)
    .toString()
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));

/** Adds an entry with this time. */
async function add(at: string, action = 'pauseConnection'): Promise<void> {
  const { operations } = stage.mirror.service;
  await operations.audit({ action, operator: ada, address: '192.0.2.1', status: 200, requestId: at });
  await stage.query("UPDATE events SET at = $1::timestamptz WHERE data->>'requestId' = $2", [at, at]);
}
const ids = (entries: { requestId: string }[]) => entries.map(({ requestId }) => requestId);
const today = () => new Date().toISOString().slice(0, 10);

test('each day of the audit log is written once, when it is over, with all its entries', async () => {
  const days = ['2026-01-30T00:00:00.000Z', '2026-01-30T23:59:59.999Z', '2026-02-01T12:00:00.000Z'];
  for (const at of days) await add(at);
  await add(`${today()}T00:00:00.000Z`);
  expect(await file()).toBe(2);
  expect(await lines('2026-01-30')).toEqual([
    expect.objectContaining({
      at: days[0],
      action: 'pauseConnection',
      by: ada,
      address: '192.0.2.1',
      outcome: 'done',
      requestId: days[0],
    }),
    expect.objectContaining({ at: days[1] }),
  ]);
  expect(ids(await lines('2026-02-01'))).toEqual([days[2]]);
  expect(await stage.ground.storage.head(`_mirror/audit/${today()}.jsonl.gz`)).toBeUndefined();
  expect(await file()).toBe(0);
});

test('a restored database writes no file over one that has more entries', async () => {
  await stage.query('DELETE FROM audit_days');
  await stage.query("DELETE FROM events WHERE data->>'requestId' = '2026-01-30T00:00:00.000Z'");
  expect(await file()).toBe(2);
  expect(await lines('2026-01-30')).toHaveLength(2);
  expect(ids(await lines('2026-01-30.2'))).toEqual(['2026-01-30T23:59:59.999Z']);
});

test('entries of the audit log are deleted after their time, but not before they are in the bucket', async () => {
  const left = async () =>
    (
      await stage.query<{ id: string }>(
        "SELECT data->>'requestId' AS id FROM events WHERE kind LIKE 'operator.%' ORDER BY at",
      )
    ).map(({ id }) => id);
  await add('2026-02-03T12:00:00.000Z');
  await stage.mirror.store.prune({ auditMs: 1000 });
  expect(await left()).toEqual(['2026-02-03T12:00:00.000Z', `${today()}T00:00:00.000Z`]);
  await file();
  await stage.mirror.store.prune({ auditMs: 1000 });
  expect(await left()).toEqual([`${today()}T00:00:00.000Z`]);
});
