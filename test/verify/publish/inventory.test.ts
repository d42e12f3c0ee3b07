import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LeaseLost } from '../../../src/floor/errors.ts';
import { writeInventory } from '../../../src/verify/publish/inventory.ts';
import type { InventoryLine } from '../../../src/verify/publish/inventory-line.ts';
import type { Manifest } from '../../../src/verify/publish/manifest.ts';
import { type RunVerificationsDeps, runInventory } from '../../../src/verify/run-verifications.ts';
import { contentOf, grounds } from '../../support/mirror.ts';
import { newScene, type Scene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const run = promisify(execFile);
const sha256 = (content: Buffer) => createHash('sha256').update(content).digest('hex');
const never = new AbortController().signal;

describe.each(grounds())('the inventory ($name)', { timeout: 240_000 }, (kind) => {
  let scene: Scene;
  let scheduled: RunVerificationsDeps;
  let ids: string[];
  let unavailable: string;
  let now: Date;
  beforeAll(async () => {
    scene = await newScene({ redis: kind.redis, s3: kind.s3, environment: { GONE_RETENTION: '90d' } });
    const { store, storage, queues, log, timings, config } = scene.mirror.service.context;
    const sizes = { pageSize: 3, fileSize: 4 };
    const { keepVersions, goneRetention } = config;
    const retention = { keepVersions, goneRetention };
    scheduled = { store, storage, queues, log, timings, ...retention, instance: 'test', now: () => now, ...sizes };
    ids = [];
    for (let n = 0; n < 7; n++) ids.push(await scene.upload({ name: `${n} $'"ß.bin`, content: { text: `file ${n}` } }));
    unavailable = await scene.upload({ status: 'unavailable' });
    await scene.resync();
    await scene.mirror.quiet();
    await scene.checked();
  });
  afterAll(async () => {
    await scene?.close();
  });

  async function read(day: string) {
    const content = async (name: string) => (await contentOf(scene.storage, `_mirror/inventory/${day}/${name}`))!;
    const folder = `_mirror/inventory/${day}/`;
    const names: string[] = [];
    for await (const { key } of scene.storage.list(folder)) names.push(key.slice(folder.length));
    const manifest: Manifest = JSON.parse((await content('manifest.json')).toString());
    const lines: InventoryLine[] = [];
    for (const { name } of manifest.files) {
      for (const line of gunzipSync(await content(name))
        .toString()
        .trimEnd()
        .split('\n')) {
        if (line !== '') lines.push(JSON.parse(line));
      }
    }
    return { names, manifest, lines, content, sums: (await content('SHA256SUMS')).toString() };
  }

  test('a process that has lost the lease of an inventory changes nothing in the bucket', async () => {
    now = new Date('2031-02-01T00:00:30Z');
    expect(await runInventory(scheduled, never)).toBe(true);
    const { content, sums } = await read('2031-02-01');
    const manifest = await content('manifest.json');
    const lost = async () => {
      throw new LeaseLost('the inventory');
    };
    await expect(
      writeInventory(scheduled, { day: '2031-02-01', now, signal: never, fence: lost }),
    ).rejects.toBeInstanceOf(LeaseLost);
    expect(await read('2031-02-01')).toMatchObject({ sums });
    expect(await content('manifest.json')).toEqual(manifest);
  });

  test('the inventory is written once a day, with the objects of each asset or the reason for their absence', async () => {
    now = new Date('2031-03-01T00:00:30Z');
    expect(await runInventory(scheduled, never)).toBe(true);
    now = new Date('2031-03-01T23:59:59Z');
    expect(await runInventory(scheduled, never)).toBe(false);

    const { names, manifest, lines, content, sums } = await read('2031-03-01');
    expect(names).toEqual([
      'SHA256SUMS',
      ...['assets-00001.jsonl.gz', 'assets-00002.jsonl.gz', 'manifest.json'],
      ...['parquet/assets-00001.parquet', 'parquet/assets-00002.parquet', 'tombstones.jsonl.gz'],
    ]);
    expect(manifest).toMatchObject({
      version: 1,
      day: '2031-03-01',
      assets: 8,
      objects: 14,
      byState: { mirrored: 7, unavailable: 1 },
      files: [{ assets: 4 }, { assets: 4 }],
      parquet: [{ assets: 4 }, { assets: 4 }],
    });
    expect(lines.map(({ id }) => id).sort()).toEqual([...ids, unavailable].sort());
    for (const line of lines.filter(({ id }) => id !== unavailable)) {
      expect(line).toMatchObject({
        state: 'mirrored',
        reason: null,
        reasonCode: null,
        companyId: 'acme',
        connectionId: scene.connectionId,
      });
      expect(Date.parse(line.verifiedAt!)).toBeGreaterThan(Date.now() - 600_000);
      expect(line.objects.map(({ key }) => key)).toEqual((await scene.keys(line.id)).sort());
      for (const { key, bytes, crc32 } of line.objects) {
        expect(bytes).toBe((await contentOf(scene.storage, key))!.length);
        expect(crc32).toMatch(/^[0-9a-f]{8}$/);
      }
    }
    expect(lines.find(({ id }) => id === unavailable)).toMatchObject({
      state: 'unavailable',
      objects: [],
      reason: 'the library says that no file is attached',
      reasonCode: 'no_file',
    });
    for (const { name, bytes, sha256: digest } of [...manifest.files, ...manifest.parquet]) {
      expect({ bytes, digest }).toEqual({ bytes: (await content(name)).length, digest: sha256(await content(name)) });
    }
    const summed = sums.trimEnd().split('\n');
    expect(summed).toHaveLength(6);
    for (const line of summed) {
      const [digest, name] = line.split('  ');
      expect(sha256(await content(name!))).toBe(digest);
    }
  });

  test('the inventory of the next day leaves that of the day before unchanged', async () => {
    const before = (await read('2031-03-01')).sums;
    now = new Date('2031-03-02T00:00:00Z');
    expect(await runInventory(scheduled, never)).toBe(true);
    expect((await read('2031-03-02')).manifest.day).toBe('2031-03-02');
    expect((await read('2031-03-01')).sums).toBe(before);
  });

  test('the inventory is written by one of several processes', async () => {
    now = new Date('2031-03-03T00:00:00Z');
    const results = await Promise.all(Array.from({ length: 5 }, () => runInventory(scheduled, never)));
    expect(results.filter(Boolean)).toHaveLength(1);
  });

  test('the inventory is written again after an interruption, and is not complete before', async () => {
    now = new Date('2031-03-04T00:00:00Z');
    const stop = AbortSignal.abort(new Error('shutting down'));
    await expect(runInventory(scheduled, stop)).rejects.toThrow('shutting down');
    expect(await scene.storage.head('_mirror/inventory/2031-03-04/SHA256SUMS')).toBeUndefined();
    expect(await runInventory(scheduled, never)).toBe(true);
    expect((await read('2031-03-04')).manifest.assets).toBe(8);
  });

  test('the inventory is replaced when a verification is asked to write it', { tags: 'slow' }, async () => {
    now = new Date();
    // The scheduled inventory may have come first, or be written now.
    await until('an inventory in two files', () => runInventory(scheduled, never, { onRequest: true }));
    const day = now.toISOString().slice(0, 10);
    expect((await read(day)).names).toHaveLength(7);
    const { id } = await scene.mirror.api('POST', '/verify', { inventory: true, deep: true });
    await until('its end', async () => (await scene.mirror.api('GET', `/verify/${id}`)).status === 'done');
    const { names, lines, manifest } = await read(day);
    expect(names).toEqual([
      ...[
        'SHA256SUMS',
        'assets-00001.jsonl.gz',
        'manifest.json',
        'parquet/assets-00001.parquet',
        'tombstones.jsonl.gz',
      ],
    ]);
    expect(lines).toHaveLength(8);
    // Each was just read, so each has a new time.
    for (const { verifiedAt, mirroredAt } of lines.filter(({ id }) => id !== unavailable)) {
      expect(Date.parse(verifiedAt!)).toBeGreaterThan(Date.parse(mirroredAt!));
    }
    expect(Date.parse(manifest.writtenAt)).toBeGreaterThan(now.getTime());
  });

  test('the inventory of a running service says when GONE_RETENTION removes a deleted asset', {
    tags: 'slow',
  }, async () => {
    const id = ids[1]!;
    await scene.admin.removeAsset(id);
    await scene.resync({ mode: 'full', acceptGone: true });
    await scene.mirror.assetIn(id, 'gone');
    await scene.checked();
    const [row] = await scene.query<{ goneAt: Date }>(`SELECT gone_at AS "goneAt" FROM assets WHERE id = '${id}'`);
    const { id: verification } = await scene.mirror.api('POST', '/verify', { inventory: true });
    const path = `/verify/${verification}`;
    await until('its end', async () => (await scene.mirror.api('GET', path)).status === 'done');
    const { lines } = await read(new Date().toISOString().slice(0, 10));
    const removedAt = new Date(row!.goneAt.getTime() + 90 * 24 * 3_600_000).toISOString();
    expect(lines.find((line) => line.id === id)).toMatchObject({ state: 'gone', removedAt });
    expect(lines.find((line) => line.id === ids[0])).toMatchObject({ removedAt: null });
  });

  test.runIf(!kind.s3)(
    'the inventory can be checked with the commands of docs/reference/bucket-layout.md',
    { tags: 'slow' },
    async () => {
      now = new Date('2031-03-01T12:00:00Z');
      await runInventory(scheduled, never);
      const root = scene.ground.environment.STORAGE_URL!.slice('file://'.length);
      const document = await readFile('docs/reference/bucket-layout.md', 'utf8');
      const commands = [...document.matchAll(/```sh\n# in the (directory|inventory)\n([\s\S]*?)```/g)].map(
        ([, where, command]) => ({ where, command: command! }),
      );
      expect(commands.length).toBeGreaterThanOrEqual(2);
      const outputs = async () => {
        const texts: string[] = [];
        for (const { where, command } of commands) {
          const cwd = where === 'inventory' ? join(root, '_mirror/inventory/2031-03-01') : root;
          const script = command.replaceAll('2026-01-31', '2031-03-01');
          texts.push(
            await run('bash', ['-c', script], { cwd }).then(
              ({ stdout }) => stdout,
              (error) => error.stdout,
            ),
          );
        }
        return texts.join('\n');
      };
      expect((await outputs()).replaceAll(/^.*: OK$/gm, '').trim()).toBe('');
      const { key } = await scene.mirror.asset(ids[0]!);
      const content = (await contentOf(scene.storage, key))!;
      await scene.storage.put(key, Buffer.concat([content, content]));
      await scene.storage.put('_mirror/inventory/2031-03-01/manifest.json', '{}');
      const printed = await outputs();
      expect(printed).toContain('manifest.json: FAILED');
      expect(printed.split(key).length - 1).toBe(commands.length - 1);
    },
  );
});
