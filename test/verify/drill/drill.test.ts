// @module-tag slow
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { reasonFields } from '../../../src/floor/reasons.ts';
import { sidecarKeys } from '../../../src/storage/keys.ts';
import { extrapolate, readSample } from '../../../src/verify/drill/read-sample.ts';
import { scrape } from '../../metrics/scrape.ts';
import { contentOf, grounds, keysOf, richest } from '../../support/mirror.ts';
import { why } from '../../support/reasons.ts';
import { newScene, type Scene } from '../../support/scene.ts';
import { spawned } from '../../support/spawned.ts';
import { until } from '../../support/until.ts';

const run = promisify(execFile);

/** Makes a drill, and returns its answer. */
async function drill({ mirror }: Scene, sample = 20) {
  const { id } = await mirror.api('POST', '/drills', { sample });
  return until('the drill to end', async () => {
    const found = await mirror.api('GET', `/drills/${id}`);
    return ['passed', 'failed'].includes(found.status) && found;
  });
}
const schemas = ({ query }: Scene) =>
  query<{ nspname: string }>(`SELECT nspname FROM pg_namespace WHERE nspname LIKE 'asset_mirror_drill%'`);
const eventsOf = ({ query }: Scene, kind: string) =>
  query<{ data: Record<string, unknown> }>(`SELECT data FROM events WHERE kind = '${kind}'`);

describe.each(grounds())('a restore drill ($name)', (kind) => {
  let scene: Scene;
  let ids: string[];
  beforeEach(async () => {
    scene = await newScene(kind);
    ids = [
      await scene.upload({ name: 'one.txt', content: { text: 'one' } }),
      await scene.upload({ name: 'two.txt', content: { text: 'two' } }),
      await scene.upload({ name: 'large.bin', content: { seed: 'large', size: 20 * 2 ** 20 } }),
      await scene.film(),
    ];
    await scene.resync();
    await scene.mirror.quiet();
    await scene.checked();
  });
  afterEach(() => scene.close());
  const keyOf = async (id: string): Promise<string> => (await scene.mirror.asset(id)).key;

  test('a drill passes with a complete copy, says what a recovery takes, and leaves nothing behind', async () => {
    const live = () =>
      scene.query(`SELECT (SELECT count(*) FROM asset_changes) AS changes, (SELECT jsonb_agg(a ORDER BY id) FROM assets a) AS assets,
        (SELECT max(id) FROM events WHERE kind NOT LIKE 'drill.%' AND kind NOT LIKE 'operator.%') AS event`);
    const before = await live();
    const keys = await keysOf(scene.storage);
    const found = await drill(scene);
    expect(found).toMatchObject({
      ...{ status: 'passed', scheduled: false, failures: [], lost: 0, oldestLoss: null, error: null },
      report: {
        restored: { assets: 4, tombstones: 0 },
        loss: { compared: 4, inProgress: 0, examples: [], onlyInDatabase: { connections: 1, holds: 0 } },
        sample: { requested: 20, assets: 4, damaged: [] },
        secrets: { checked: 1, unreadable: [] },
        problems: { count: 0, lines: [] },
      },
    });
    expect(found.report.sample.bytes).toBeGreaterThan(20 * 2 ** 20);
    expect(found.recovery.mediaBytes).toBe(found.report.restored.bytes);
    expect(found.recovery.mediaMs).toBeGreaterThanOrEqual(0);
    const inBucket = JSON.parse((await contentOf(scene.storage, found.key))!.toString());
    expect(found.key).toMatch(/^_mirror\/drills\/\d{4}-\d\d-\d\d\.json$/);
    expect(inBucket).toMatchObject({ version: 1, id: found.id, passed: true, recovery: found.recovery });

    const { value } = await until('the drill to be among the metrics', async () => {
      const shown = await scrape(scene.ground.publicUrl);
      return shown.names.has('asset_mirror_drill_passed') && shown;
    });
    expect(value('asset_mirror_drill_passed')).toBe(1);
    expect(value('asset_mirror_recovery_seconds{part="records"}')).toBeGreaterThan(0);
    expect(await schemas(scene)).toEqual([]);
    expect(await keysOf(scene.storage)).toEqual(keys);
    expect(await eventsOf(scene, 'drill.passed')).toMatchObject([{ data: { drillId: found.id } }]);
    expect(await live()).toEqual(before);
    const again = await drill(scene);
    const { day } = JSON.parse((await contentOf(scene.storage, again.key))!.toString());
    // After midnight, it is the first of its day.
    expect(again.key).toBe(`_mirror/drills/${day}${day === inBucket.day ? '.2' : ''}.json`);
  });

  test('a drill fails for lost records, missing objects and flipped bits, and names each', async () => {
    const [one, two, large, film] = (await Promise.all(ids.map(keyOf))) as [string, string, string, string];
    await scene.storage.remove(sidecarKeys.record(one));
    await scene.storage.remove(two);
    const content = (await contentOf(scene.storage, large))!;
    content[10_000_000]! ^= 1;
    await scene.storage.put(large, content);
    await scene.storage.remove(sidecarKeys.captions(film));
    const found = await drill(scene);
    expect(found).toMatchObject({ status: 'failed', lost: 1 });
    const counts = Object.fromEntries(
      found.failures.map((failure: { code: string; count: number }) => [failure.code, failure.count]),
    );
    expect(counts).toEqual({
      record_missing: 1,
      media_missing: 1,
      // Without ETags, only the sample finds it.
      ...(kind.s3 && { media_differs: 1 }),
      sidecar_missing: 1,
      object_damaged: 4,
    });
    expect(found.failures[0].text).toBe('1 record is missing or cannot be read');
    expect(found.report.loss.examples).toContainEqual(
      expect.objectContaining({ assetId: ids[0], key: one, code: 'record_missing' }),
    );
    expect(Date.parse(found.oldestLoss)).toBeLessThan(Date.parse(found.startedAt));
    const damaged = found.report.sample.damaged.map(({ key }: { key: string }) => key).sort();
    expect(damaged).toEqual([sidecarKeys.record(one), two, large, sidecarKeys.captions(film)].sort());
    expect(JSON.parse((await contentOf(scene.storage, found.key))!.toString())).toMatchObject({ passed: false });
    const [event] = await eventsOf(scene, 'drill.failed');
    expect(event!.data.reason).toContain('1 media file is missing');
    expect(await schemas(scene)).toEqual([]);
  });
});

describe('a restore drill', () => {
  let scene: Scene;
  afterEach(() => scene.close());
  async function begin(options: Parameters<typeof newScene>[0] = {}): Promise<string> {
    scene = await newScene({ ...richest(), ...options });
    const id = await scene.upload();
    await scene.resync();
    await scene.mirror.quiet();
    await scene.checked();
    return id;
  }

  test('a drill fails when the key is missing that sealed the tokens of a connection', async () => {
    await begin();
    const key = scene.ground.environment.ENCRYPTION_KEYS!;
    await scene.restart({ ENCRYPTION_KEYS: randomBytes(32).toString('base64') });
    const found = await drill(scene);
    expect(found.failures).toEqual([
      { code: 'secret_unreadable', count: 1, text: '1 token or secret cannot be decrypted with ENCRYPTION_KEYS' },
    ]);
    expect(found.report.secrets).toMatchObject({ checked: 1, unreadable: [{ name: scene.connectionId }] });
    expect(found.report.secrets.unreadable[0].reason).toContain('which is not among ENCRYPTION_KEYS');
    await scene.restart({ ENCRYPTION_KEYS: key });
    expect(await drill(scene)).toMatchObject({ status: 'passed' });
  });

  test('a drill fails for an erased asset without tombstone, which a recovery would mirror again', async () => {
    await begin();
    await scene.query(`INSERT INTO tombstones VALUES ('${'ab'.repeat(32)}', '2026-01-01', 'ada', 'asked for')`);
    expect(await drill(scene)).toMatchObject({
      failures: [{ code: 'tombstone_missing', count: 1 }],
      oldestLoss: '2026-01-01T00:00:00.000Z',
    });
  });

  test('a drill of a process that died begins again in another one, which drops the schema of the first', async () => {
    await begin();
    await scene.mirror.stop();
    const [row] = await scene.query<{ value: string }>(`SELECT value FROM settings WHERE name = 'installation'`);
    const left = `asset_mirror_drill_${row!.value.slice(0, 8)}_0000dead`;
    await scene.query(`CREATE SCHEMA ${left}; CREATE TABLE ${left}.assets (id text)`);
    await scene.query(`INSERT INTO drills (id, sample, scheduled, status, owner, until, started_at)
      VALUES ('lost', 5, true, 'running', 'dead', now() + interval '1 second', now())`);
    await scene.restart();
    const ended = () => scene.mirror.api('GET', '/drills/lost').then((it) => it.status === 'passed' && it);
    expect(await until('the drill to end', ended)).toMatchObject({
      scheduled: true,
      report: { sample: { requested: 5 } },
    });
    expect(await schemas(scene)).toEqual([]);
  });

  test('a drill is made by the schedule, the first time a day after the first connection', async () => {
    await begin({ environment: { DRILL_INTERVAL: '7d' } });
    await until(
      'the first one to be planned',
      async () => (await scene.query(`SELECT FROM chores WHERE name = 'drill'`)).length > 0,
    );
    const [{ hours }] = (await scene.query<{ hours: number }>(
      `SELECT extract(epoch FROM due_at - now())::float8 / 3600 AS hours FROM chores WHERE name = 'drill'`,
    )) as [{ hours: number }];
    expect(hours).toBeGreaterThan(23);
    await scene.query(`UPDATE chores SET due_at = now() WHERE name = 'drill'`);
    const ended = async () =>
      (await scene.mirror.api('GET', '/drills')).drills.find((it: { status: string }) => it.status === 'passed');
    expect(await until('the drill to end', ended)).toMatchObject({ scheduled: true });
  });

  test('a drill cannot be made without the bucket, and then it has failed', async () => {
    // No worker makes it meanwhile.
    scene = await newScene({ ...richest(), role: 'web' });
    await scene.mirror.store.drills.request({ sample: 1 });
    for (let attempt = 1; attempt <= 3; attempt++) {
      const taken = (await scene.mirror.store.drills.take('me', 60_000))!;
      const failed = await scene.mirror.store.drills.attemptFailed({
        id: taken.id,
        owner: 'me',
        error: why,
        waitMs: 0,
      });
      expect(failed).toBe(attempt === 3);
    }
    expect(await scene.mirror.store.drills.last()).toMatchObject({
      status: 'failed',
      error: why,
      report: null,
    });
    expect(await eventsOf(scene, 'drill.failed')).toMatchObject([{ data: reasonFields(why) }]);
  });

  test('a drill that lost its lease ends without a result', async () => {
    await begin();
    const report = {
      ...JSON.parse((await contentOf(scene.storage, (await drill(scene)).key))!.toString()),
      id: 'mine',
    };
    await scene.query(`INSERT INTO drills (id, sample, scheduled, status, owner, until, started_at)
      VALUES ('mine', 5, true, 'running', 'me', now() + interval '1 hour', now())`);
    const { drills } = scene.mirror.store;
    expect(await drills.finish('another', report, 'key')).toBe(false);
    expect(await drills.get('mine')).toMatchObject({ status: 'running', report: null });
    expect(await drills.finish('me', report, 'key')).toBe(true);
    expect(await eventsOf(scene, 'drill.passed')).toHaveLength(2);
  });

  test('a drill passes while an asset is being changed, and counts it as neither failed nor lost', async () => {
    const id = await begin();
    await scene.storage.remove(sidecarKeys.record((await scene.mirror.asset(id)).key));
    await scene.query(`UPDATE assets SET lease_until = now() + interval '1 hour' WHERE id = '${id}'`);
    expect(await drill(scene)).toMatchObject({
      ...{ status: 'passed', lost: 0, oldestLoss: null },
      report: { loss: { compared: 1, inProgress: 1, examples: [] } },
    });
  });

  test('a drill fails for a record that is not written again', async () => {
    const id = await begin();
    await scene.storage.remove(sidecarKeys.record((await scene.mirror.asset(id)).key));
    await scene.query(`UPDATE assets SET record_key = NULL, next_at = NULL WHERE id = '${id}'`);
    const found = await drill(scene);
    expect(found).toMatchObject({ status: 'failed', lost: 1, report: { loss: { inProgress: 0 } } });
    expect(found.text).toContain('1 record is missing or cannot be read');
    expect(found.text).toContain('1 record would be lost');
  });

  test('a drill fails for a missing media file, which is no loss: it is downloaded again', async () => {
    const id = await begin();
    await scene.storage.remove((await scene.mirror.asset(id)).key);
    expect(await drill(scene)).toMatchObject({ status: 'failed', lost: 0, oldestLoss: null });
  });

  test('a drill tells objects that cannot be read from damaged ones', async () => {
    const id = await begin();
    const { key } = await scene.mirror.asset(id);
    const { store, storage } = scene.mirror.service.context;
    const get: typeof storage.get = (wanted, options) =>
      wanted === key ? Promise.reject(new Error('the store answered 500')) : storage.get(wanted, options);
    const { signal } = new AbortController();
    const found = await readSample(
      { store, storage: { ...storage, get } },
      { ids: [id], versions: [], requested: 1, signal },
    );
    expect(found).toMatchObject({ assets: 1, damaged: [], unreadable: [{ assetId: id, key }] });
  });

  test('a drill is started by the command line, which waits and exits with 1 if it fails', async () => {
    const id = await begin();
    const env = { ...spawned, ...scene.ground.environment, ASSET_MIRROR_URL: scene.ground.publicUrl };
    const command = (...words: string[]) => run(process.execPath, ['src/main.ts', 'drill', ...words], { env });
    const { stdout } = await command();
    for (const line of [
      'The drill passed.',
      'Compared:   1 asset\n',
      'Decrypted:  1 of 1 tokens and secrets',
      'Lost:       nothing',
    ]) {
      expect(stdout).toContain(line);
    }
    await scene.storage.remove(sidecarKeys.record((await scene.mirror.asset(id)).key));
    const failed = await command('--sample', '3', '--json').catch((error) => error);
    expect(failed.code).toBe(1);
    expect(JSON.parse(failed.stdout)).toMatchObject({ status: 'failed', report: { sample: { requested: 3 } } });
  });
});

test.each([
  ['many small files', { assets: 10, bytes: 1000, ms: 100 }, { assets: 1000, bytes: 5000 }, 10_000],
  ['few large files', { assets: 10, bytes: 1000, ms: 100 }, { assets: 20, bytes: 1_000_000 }, 100_000],
  ['nothing read', { assets: 0, bytes: 0, ms: 3 }, { assets: 20, bytes: 1_000_000 }, null],
])('the time for all media follows assets or bytes, whichever takes longer: %s', (_, sample, all, expected) => {
  expect(extrapolate(sample, all)).toBe(expected);
});
