import pg from 'pg';
import type { Storage } from '../../src/storage/storage.ts';
import { Scrubber } from '../../src/verify/scrub.ts';
import { contentOf } from '../support/mirror.ts';
import { newScene } from '../support/scene.ts';
import { until } from '../support/until.ts';

/** The milliseconds of a day. */
export const day = 86_400_000;

export type Scrubbing = Awaited<ReturnType<typeof newScrubbing>>;

/** A scene with four files that are mirrored, and a scrub that the test runs itself. */
export async function newScrubbing() {
  const scene = await newScene();
  const database = new pg.Client({ connectionString: scene.ground.environment.DATABASE_URL! });
  await database.connect();
  const ids: string[] = [];
  for (let i = 0; i < 4; i++) ids.push(await scene.upload({ content: { text: `file ${i}` } }));
  await scene.resync();
  for (const id of ids) await scene.mirror.assetIn(id, 'mirrored');
  await scene.checked();

  function scrubber(options: { cycle?: number; bandwidth?: number; storage?: Storage } = {}) {
    const { context } = scene.mirror.service;
    const breaker = { openReason: undefined };
    const onRead = (bytes: number) => context.metrics.scrubbedBytes.inc(bytes);
    return new Scrubber({
      onRead,
      ...context,
      breaker,
      instance: 'test',
      cycle: 90 * day,
      bandwidth: 10 * 2 ** 20,
      ...options,
    });
  }
  const age = (id: string, days: number) =>
    database.query(`UPDATE assets SET verified_at = now() - $2 * interval '1 day' WHERE id = $1`, [id, days]);
  const row = async (id: string) => (await scene.mirror.store.assets.get(id))!;
  const isFresh = async (id: string) => Date.now() - (await row(id)).verifiedAt!.getTime() < 3_600_000;
  const fresh = async () => (await Promise.all(ids.map(isFresh))).flatMap((is, i) => (is ? [i] : []));
  /** Other bytes of the same length. */
  const damage = async (key: string) => {
    const content = (await contentOf(scene.storage, key))!;
    await scene.storage.put(key, Buffer.alloc(content.length, 'x'));
  };

  /** An asset with a superseded file; `key` has the current one. */
  async function replacedFile() {
    const id = await scene.upload({ content: { text: 'good' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    const { key } = await scene.mirror.asset(id);
    await scene.admin.changeAsset(id, { content: { text: 'another one' } });
    await scene.resync();
    await until('the other file', async () => (await contentOf(scene.storage, key))?.toString() === 'another one');
    await scene.checked();
    await scene.mirror.quiet();
    return { id, key };
  }

  return {
    ...{ scene, database, ids, scrubber, age, row, isFresh, fresh, damage, replacedFile },
    /** As if everything had just been verified. */
    async reset() {
      await database.query('DELETE FROM scrub');
      await database.query(
        `UPDATE assets SET verified_at = now(), unverifiable_at = NULL WHERE state IN ('mirrored', 'gone')`,
      );
    },
    async close() {
      await database.end();
      await scene.close();
    },
  };
}
