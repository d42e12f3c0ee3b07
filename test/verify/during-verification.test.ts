import type pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StorageUnavailable } from '../../src/floor/errors.ts';
import { createLog } from '../../src/floor/log.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { verify } from '../../src/verify/verify.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { connectTo, type Line, settleLongAgo } from './verifications.ts';

describe('an interrupted verification', { timeout: 240_000 }, () => {
  let scene: Scene;
  beforeEach(async () => {
    scene = await newScene();
  });
  afterEach(async () => {
    await scene?.close();
  });

  test('an interrupted verification continues in the next process, and reports each object once', {
    tags: 'slow',
  }, async () => {
    const ids = await Promise.all(Array.from({ length: 5 }, (_, n) => scene.upload({ name: `${n}.bin` })));
    await scene.resync();
    await scene.mirror.quiet();
    await scene.checked();
    const keys = await Promise.all(ids.map(async (id) => (await scene.mirror.asset(id)).key));
    for (const key of keys) await scene.storage.remove(key);
    // The listing hangs, so the run is in its first phase when the process ends.
    await scene.admin.addFault({ endpoint: 'me', latency: 60_000 });
    const { id } = await scene.mirror.api('POST', '/verify', {});
    const status = async () => (await scene.mirror.api('GET', `/verify/${id}`)).status;
    await until('the run to begin', async () => (await status()) === 'running');
    await scene.admin.clearFaults();
    await scene.restart();
    const run = await until('the end', async () => {
      const run = await scene.mirror.api('GET', `/verify/${id}`);
      return run.status === 'done' && run;
    });
    expect(brief(run.lines)).toEqual(keys.map((key) => `- ${key}`).sort());
  });
  const brief = (lines: Line[]) => lines.map(({ mark, key }) => `${mark} ${key}`).sort();
});

describe('changes during a verification', { timeout: 240_000 }, () => {
  let scene: Scene;
  let database: pg.Client;
  beforeEach(async () => {
    scene = await newScene();
    database = await connectTo(scene);
  });
  afterEach(async () => {
    await database?.end();
    await scene?.close();
  });
  const age = () => database.query(settleLongAgo);
  /** Waits also for the scheduled verification, which would repair the objects that are removed below. */
  const settle = async () => {
    await scene.resync();
    await scene.mirror.quiet();
    await scene.checked();
  };

  /** Calls `meanwhile` after the last object of the bucket was listed, before the list ends. */
  async function verifyWith(meanwhile: () => Promise<void>, change: Partial<Storage> = {}) {
    await database.query(
      `INSERT INTO verifications (id, options, status, started_at, owner, until)
       VALUES ('this', '{"all": true, "deep": true}', 'running', now(), 'this test', now() + interval '1 hour')`,
    );
    const storage: Storage = {
      ...scene.storage,
      async *list(prefix, options) {
        yield* scene.storage.list(prefix, options);
        await meanwhile();
      },
      ...change,
    };
    const { store, service } = scene.mirror;
    const log = createLog({ level: 'silent', pretty: false });
    await verify(
      { store, storage, queues: service.context.queues, log, writeInventory: async () => {} },
      (await store.verifications.get('this'))!,
      'this test',
      new AbortController().signal,
    );
    const { lines, counts } = await scene.mirror.api('GET', '/verify/this?limit=1000');
    const of = (id: string) =>
      lines
        .filter(({ assetId }: Line) => assetId === id)
        .map(({ mark, kind }: Line) => `${mark} ${kind}`)
        .sort();
    return { of, counts };
  }

  test('an asset that arrives during a verification is compared at its end', { tags: 'slow' }, async () => {
    const old = await scene.upload({ name: 'there before.bin' });
    await settle();
    await age();
    const fresh = await scene.upload({ name: 'just there.bin' });
    await settle();
    const late: string[] = [];
    for (const name of ['whole.bin', 'lost.bin']) {
      const id = await scene.upload({ name });
      await scene.admin.addFault({ endpoint: 'media', assetId: id, status: 503 });
      late.push(id);
    }
    const [whole, lost] = late as [string, string];
    const { of, counts } = await verifyWith(async () => {
      await scene.admin.clearFaults();
      for (const id of late) await scene.mirror.assetIn(id, 'mirrored');
      await scene.mirror.quiet();
      await scene.storage.remove((await scene.mirror.asset(lost)).key);
    });
    for (const id of [old, fresh, whole]) expect(of(id), id).toEqual(['= media', '= record']);
    expect(of(lost)).toEqual(['- media', '= record']);
    expect(counts).toMatchObject({ same: 7, missing: 1, moving: 0, foreign: 0 });
  });

  test('an asset whose follow-up check changes nothing is reported once', { tags: 'slow' }, async () => {
    const id = await scene.film();
    await settle();
    await age();
    await scene.storage.remove((await scene.mirror.asset(id)).key);
    const { of, counts } = await verifyWith(async () => {
      await scene.admin.changeAsset(id, { tags: ['autumn'] });
      await scene.resync();
      await scene.mirror.quiet();
      expect((await scene.record(id)).asset.tags).toEqual(['autumn']);
    });
    expect(of(id).filter((line: string) => line.endsWith(' media'))).toEqual(['- media']);
    expect(counts).toMatchObject({ missing: 1, moving: 0 });
  });

  test('an asset that is deleted before it could be mirrored again is reported', { tags: 'slow' }, async () => {
    const id = await scene.upload({ name: 'once.bin' });
    await settle();
    await age();
    const { key } = await scene.mirror.asset(id);
    await scene.admin.addFault({ endpoint: 'media', assetId: id, status: 403 });
    await scene.admin.changeAsset(id, { content: { text: 'another version of it' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'failed');
    await scene.checked();
    await scene.storage.remove(key);
    const { of, counts } = await verifyWith(async () => {
      await scene.admin.removeAsset(id);
      // The sync of the verification has made it due again, and no sync marks an asset as gone during an attempt.
      await until('it to be gone', async () => {
        await scene.resync();
        return (await scene.mirror.asset(id)).state === 'gone';
      });
    });
    expect(of(id)).toEqual(['- media', '= record']);
    expect(counts).toMatchObject({ missing: 1 });
  });

  test.each([new Error('the store answered 400'), new StorageUnavailable('the store denies access')])(
    'an object that cannot be read (%s) is reported as an error',
    { tags: 'slow' },
    async (refusal) => {
      const [bad, good] = [await scene.upload({ name: 'bad.bin' }), await scene.upload({ name: 'good.bin' })];
      await settle();
      const { of, counts } = await verifyWith(async () => {}, {
        async head(key, options) {
          if (key.includes(bad)) throw refusal;
          return scene.storage.head(key, options);
        },
      });
      expect([of(bad), of(good)]).toEqual([
        ['! media', '! record'],
        ['= media', '= record'],
      ]);
      expect(counts).toMatchObject({ errors: 2, same: 2 });
    },
  );
});
