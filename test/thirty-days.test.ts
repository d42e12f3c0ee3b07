// @module-tag slow
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, inject, test } from 'vitest';
import { readConfig } from '../src/config/config.ts';
import { rebuildFrom } from '../src/offline/rebuild.ts';
import { restoreFrom } from '../src/offline/restore.ts';
import { openDirectory } from '../src/storage/directory/directory.ts';
import { openStore } from '../src/store/store.ts';
import { compareVersions } from '../src/verify/compare-versions.ts';
import { nothingFound } from '../src/verify/counts.ts';
import { differencesAmong } from '../src/verify/finding.ts';
import { writeInventory } from '../src/verify/publish/inventory.ts';
import { createRandom } from './chaos/prng.ts';
import { newDatabase } from './support/database.ts';
import { contentOf, libraryEnvironment } from './support/mirror.ts';
import { newStage, type Stage } from './support/stage.ts';
import { until } from './support/until.ts';
import { workerOf } from './support/worker.ts';

const s3 = inject('s3');
const signal = new AbortController().signal;
const days = 30;

/** A day is a moment: what happens after it belongs to the next one. */
interface Day {
  end: Date;
  /** All objects of the assets that are in the library, by key, as text. */
  objects: Record<string, string>;
}

describe.each([
  { name: 'a directory', s3: undefined, versions: false },
  ...(s3 ? [{ name: `a bucket of ${s3.name}`, s3, versions: false }] : []),
  ...(s3 ? [{ name: `a bucket of ${s3.name} with versions`, s3, versions: true }] : []),
])('thirty days of uploads, replacements and deletions in $name', { timeout: 1_200_000 }, ({ s3, versions }) => {
  test('each day can be restored byte for byte, and verify, rebuild and inventory agree', async () => {
    const stage = await newStage({ s3, versions });
    const worker = workerOf(stage);
    const home = await mkdtemp(join(tmpdir(), 'asset-mirror-days-'));
    try {
      const past = await live(stage, worker);
      const config = readConfig({ ...stage.ground.environment, ...libraryEnvironment(stage.library) });
      const { log } = stage.mirror.service.context;
      const problems: string[] = [];
      const report = { start() {}, problem: (line: string) => problems.push(line), progress() {} };
      for (const [number, { end, objects }] of past.entries()) {
        const path = join(home, String(number));
        const to = { kind: 'directory' as const, path };
        const so = await restoreFrom(config, { to, overwrite: false, asOf: end }, { log, stop: signal, report });
        expect(so).toMatchObject({ failed: 0, copied: new Set(Object.keys(objects).map(idIn)).size });
        expect({ number, restored: await textsIn(await openDirectory({ path })) }).toEqual({
          number,
          restored: objects,
        });
      }
      expect(problems).toEqual([]);

      const { store } = stage;
      const { storage } = stage.ground;
      const all = await store.versions.page({ after: undefined, limit: 10_000 });
      expect(all.length).toBeGreaterThan(days);
      const found = await compareVersions({ store, storage }, all, { deep: true, signal, counts: { ...nothingFound } });
      expect(differencesAmong(found)).toEqual([]);
      const manifest = await writeInventory(
        { store, storage, log, keepVersions: Number.POSITIVE_INFINITY, goneRetention: Number.POSITIVE_INFINITY },
        { day: '2026-01-31', now: new Date(), signal },
      );
      expect(manifest.versions).toEqual(await store.versions.total());

      const database = await newDatabase({ empty: true });
      const lost = { ...config, databaseUrl: database.url };
      expect(await rebuildFrom(lost, { log, stop: signal, report })).toMatchObject({
        versions: all.length,
        skipped: 0,
      });
      const rebuilt = await openStore({ url: database.url, log });
      expect(await rebuilt.versions.page({ after: undefined, limit: 10_000 })).toEqual(all);
      await rebuilt.close();
      await database.drop();
    } finally {
      await worker.close();
      await stage.close();
      await rm(home, { recursive: true, force: true });
    }
  });
});

const idIn = (key: string) => key.split('/')[2];

async function textsIn(storage: Stage['ground']['storage'], ids?: Set<string>): Promise<Record<string, string>> {
  const texts: Record<string, string> = {};
  for await (const { key } of storage.list('')) {
    if (key.startsWith('_mirror/') || (ids && !ids.has(idIn(key)!))) continue;
    texts[key] = (await contentOf(storage, key))!.toString('latin1');
  }
  return texts;
}

async function live(stage: Stage, worker: ReturnType<typeof workerOf>): Promise<Day[]> {
  const { companyId, connectionId } = await stage.company();
  // All days pass within minutes, so their replacements count together.
  await stage.mirror.api('PATCH', `/connections/${connectionId}`, { holdReplaced: '100%,0' });
  const { between, chance, pick } = createRandom('thirty days');
  const present = new Set<string>();
  const past: Day[] = [];
  let made = 0;
  const content = () => ({ text: `content ${++made} ${'x'.repeat(between(0, 2000))}` });
  for (let day = 1; day <= days; day++) {
    const changed = new Set<string>();
    for (let uploads = day === 1 ? 6 : between(0, 2); uploads > 0; uploads--) {
      const [id] = await stage.upload(companyId, 1, {
        ...{ filename: `file ${made}.png`, mimeType: 'image/png', assetType: 'photography', thumbnail: chance(0.5) },
        ...{ content: content(), uploadDate: Date.UTC(2026, 0, day) },
      });
      present.add(id!);
      changed.add(id!);
    }
    for (let replacements = between(1, 3); replacements > 0; replacements--) {
      const id = pick([...present]);
      const filename = chance(0.3) ? { filename: `renamed ${made}.png` } : {};
      await stage.admin.changeAsset(id, { content: content(), uploadDate: Date.UTC(2026, 0, day, 12), ...filename });
      changed.add(id);
    }
    const [oldest] = present;
    if (present.size > 4 && chance(0.4) && !changed.has(oldest!)) {
      await stage.admin.removeAsset(oldest!);
      present.delete(oldest!);
    }
    await stage.sync(connectionId, 'full');
    for (const id of changed) await worker.complete(id);
    const objects = await textsIn(stage.ground.storage, present);
    const end = new Date(await stage.store.now());
    past.push({ end, objects });
    await until('the next day', async () => (await stage.store.now()) > end.getTime());
  }
  return past;
}
