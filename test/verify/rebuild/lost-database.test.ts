// @module-tag slow
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Store } from '../../../src/store/store.ts';
import { newDatabase } from '../../support/database.ts';
import { grounds, keysOf } from '../../support/mirror.ts';
import { newScene, type Scene } from '../../support/scene.ts';
import { spawned } from '../../support/spawned.ts';
import { connectAs } from '../../support/stage.ts';
import { until } from '../../support/until.ts';

const run = promisify(execFile);
const minutes = (n: number) => n * 60_000;

/** Runs the command, without the settings of a library; returns its output and exit code. */
async function command(scene: Scene, ...words: string[]): Promise<{ code: number; output: string }> {
  const env = { ...spawned, ...scene.ground.environment };
  const done = await run(process.execPath, ['src/main.ts', ...words], { env }).catch((error) => error);
  return { code: done.code ?? 0, output: `${done.stdout}${done.stderr}` };
}

describe.each(grounds())('a lost database ($name)', { timeout: minutes(5) }, (kind) => {
  let scene: Scene;
  const databases: { drop(): Promise<void> }[] = [];
  const ids: string[] = [];

  beforeEach(async () => {
    scene = await newScene(kind);
    ids.length = 0;
    const inner = { version: 1, companyId: 'acme', asset: { id: 'x' }, media: { key: 'report' } };
    ids.push(
      await scene.upload({ name: 'one.txt', mimeType: 'text/plain' }),
      await scene.upload({
        name: 'report.asset.json',
        mimeType: 'application/json',
        content: { text: JSON.stringify(inner) },
      }),
      await scene.upload({ name: 'large.bin', content: { seed: 'large', size: 40 * 2 ** 20 } }),
      await scene.film(),
      await scene.upload({ name: 'picture.png', mimeType: 'image/png', assetType: 'photography', thumbnail: true }),
    );
    await scene.resync();
    await scene.mirror.quiet();
  });
  afterEach(async () => {
    await scene.close();
    for (const database of databases.splice(0)) await database.drop();
  });

  /** The assets of the database, without connection, first sync and times of checks. */
  async function contents(store: Store) {
    const rows = await Promise.all(ids.map((id) => store.assets.get(id)));
    const ofTheMoment =
      'connectionId syncId lease revision firstSeenAt mirroredAt settledAt verifiedAt nextAt thumbnailState sidecarFiles'.split(
        ' ',
      );
    return rows.map((row) =>
      JSON.parse(JSON.stringify(row, (key, value) => (ofTheMoment.includes(key) || key === 'expiresAt' ? 0 : value))),
    );
  }

  /** Lengths and checksums of transcripts and thumbnails. */
  async function checksums(store: Store) {
    const rows = await Promise.all(ids.map((id) => store.assets.get(id)));
    const files = rows.flatMap((row) => Object.entries(row!.sidecarFiles));
    return files.filter(([key]) => !key.endsWith('.asset.json')).map(([key, { etag: _, ...file }]) => [key, file]);
  }

  async function loseTheDatabase(): Promise<void> {
    await scene.mirror.stop();
    const database = await newDatabase({ empty: true });
    databases.push(database);
    scene.ground.environment.DATABASE_URL = database.url;
  }

  const downloads = async () =>
    (await scene.admin.requests()).filter(({ endpoint }) => endpoint === 'media' || endpoint === 'mp4');

  test('rebuild restores all records, and a later connect downloads nothing again', async () => {
    const before = await contents(scene.mirror.store);
    const sums = await checksums(scene.mirror.store);
    expect(sums.length).toBeGreaterThan(3);
    const keys = await keysOf(scene.storage);
    await loseTheDatabase();
    const first = await command(scene, 'rebuild', '--json');
    expect(first.code, first.output).toBe(0);
    expect(JSON.parse(first.output)).toMatchObject({ restored: 5, known: 0, pending: 0, skipped: 0, problems: [] });
    const again = await command(scene, 'rebuild');
    expect(again.code, again.output).toBe(0);
    expect(again.output).toMatch(/0 assets restored \(5 already known\)/);

    await scene.admin.clearRequests();
    await scene.restart();
    const { mirror } = scene;
    expect(await contents(mirror.store)).toEqual(before);
    expect(await checksums(mirror.store)).toEqual(sums);
    expect((await mirror.store.assets.get(ids[0]!))?.connectionId).toBeNull();
    expect(await mirror.asset(ids[0]!)).toMatchObject({ state: 'mirrored', connectionId: null });
    expect(await keysOf(scene.storage)).toEqual(keys);

    const connectionId = await mirror.connect();
    await mirror.api('POST', `/connections/${connectionId}/resync`, { mode: 'full' });
    await until(
      'all to be the connection’s',
      async () => (await mirror.api('GET', `/connections/${connectionId}`)).counts.byState.mirrored === ids.length,
    );
    await mirror.quiet();
    expect(await downloads()).toEqual([]);
    expect(await contents(mirror.store)).toEqual(before);
    expect((await mirror.api('GET', `/connections/${connectionId}`)).companies).toMatchObject([{ name: 'Acme' }]);

    const fresh = await scene.upload({ name: 'fresh.bin', uploadDate: Date.now() });
    await mirror.api('POST', `/connections/${connectionId}/resync`, { mode: 'incremental' });
    await mirror.assetIn(fresh, 'mirrored');
    expect((await downloads()).map(({ assetId }) => assetId ?? fresh)).toEqual([fresh]);
  });

  test('a rebuild from the wrong place finds nothing, exits with 1, and does not bind the database to that place', async () => {
    await loseTheDatabase();
    const right = scene.ground.environment.STORAGE_URL!;
    scene.ground.environment.STORAGE_URL = `${right}-mistyped`;
    for (let i = 0; i < 2; i++) {
      const wrong = await command(scene, 'rebuild');
      expect(wrong.code, wrong.output).toBe(1);
      expect(wrong.output).toContain('No records found. Check STORAGE_URL');
    }
    scene.ground.environment.STORAGE_URL = right;
    const { code, output } = await command(scene, 'rebuild', '--json');
    expect(code, output).toBe(0);
    expect(JSON.parse(output)).toMatchObject({ restored: 5 });
    await scene.restart();
  });

  test('a service with a new database refuses the bucket until rebuild has run', async () => {
    const keys = await keysOf(scene.storage);
    await loseTheDatabase();
    await scene.admin.clearRequests();
    await scene.restart();
    const { mirror } = scene;
    const { bucket } = await mirror.api('GET', '/status');
    expect(bucket).toMatchObject({
      ok: false,
      reason: expect.stringMatching(/`asset-mirror rebuild` restores the records/),
    });
    const connectionId = await connectAs(mirror, scene.library.users[0]!.id);
    await until(
      'the listing to be known',
      async () => (await mirror.api('GET', '/status')).assets.byState.pending === 5,
    );

    const { code, output } = await command(scene, 'rebuild', '--json');
    expect(code, output).toBe(0);
    expect(JSON.parse(output)).toMatchObject({ restored: 5, skipped: 0 });
    await mirror.quiet();
    expect((await mirror.api('GET', `/connections/${connectionId}`)).counts.byState.mirrored).toBe(5);
    expect(await downloads()).toEqual([]);
    expect(await keysOf(scene.storage)).toEqual(keys);
    await until('the service to notice', async () => (await mirror.api('GET', '/status')).bucket.ok);
  });
});
