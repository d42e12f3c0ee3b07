// @module-tag slow
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { startMirror } from '../support/mirror.ts';
import { freePort } from '../support/ports.ts';
import { newScene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const logged = ({ lines }: { lines: Record<string, unknown>[] }, event: string) =>
  lines.filter((line) => line.event === event);

test('a worker whose bucket alone is unavailable takes no jobs from the others', async () => {
  const scene = await newScene();
  const elsewhere = await mkdtemp(join(tmpdir(), 'asset-mirror-other-disk-'));
  const environment = { ...scene.ground.environment, STORAGE_URL: `file://${elsewhere}` };
  const broken = await startMirror({ ...scene.ground, environment }, scene.library, 'worker');
  try {
    await until('its breaker to open', () => logged(broken, 'bucket.failed').length > 0);
    const ids = await Promise.all(Array.from({ length: 40 }, () => scene.upload()));
    await scene.resync();
    for (const id of ids) await scene.mirror.assetIn(id, 'mirrored');
    const handedBack = `SELECT FROM asset_history WHERE data->'reason'->>'code' = 'bucket_unavailable'`;
    expect(await scene.query(handedBack)).toEqual([]);
  } finally {
    await broken.stop();
    await scene.close();
    await rm(elsewhere, { recursive: true, force: true });
  }
});

test('a worker that alone cannot reach the library takes no jobs from the others, and slows none down', async () => {
  const scene = await newScene();
  const offline = { ...scene.library, apiUrl: `http://127.0.0.1:${await freePort()}` } as typeof scene.library;
  const broken = await startMirror(scene.ground, offline, 'worker');
  try {
    await until('it to notice that', async () => {
      await scene.upload();
      await scene.resync({ mode: 'incremental' });
      return logged(broken, 'library.unreachable').length > 0;
    });
    const ids = await Promise.all(Array.from({ length: 40 }, () => scene.upload()));
    await scene.resync();
    for (const id of ids) await scene.mirror.assetIn(id, 'mirrored');
    for (const mirror of [scene.mirror, broken]) {
      expect(logged(mirror, 'connection.slowed_down')).toEqual([]);
      expect(logged(mirror, 'connection.delayed')).toEqual([]);
    }
    expect(logged(broken, 'library.unreachable')).toHaveLength(1);
  } finally {
    await broken.stop();
    await scene.close();
  }
});
