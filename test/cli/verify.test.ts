// @module-tag slow
import { execFile } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { contentOf } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { spawned } from '../support/spawned.ts';
import { connectAs } from '../support/stage.ts';

describe('asset-mirror verify', { timeout: 240_000 }, () => {
  let scene: Scene;
  let id: string;
  let key: string;
  beforeAll(async () => {
    scene = await newScene();
    id = await scene.upload();
    await scene.resync();
    ({ key } = await scene.mirror.assetIn(id, 'mirrored'));
    await scene.mirror.quiet();
  });
  afterAll(async () => {
    await scene?.close();
  });

  function verify(args: string[] = [], url = scene.ground.publicUrl) {
    const env = { ...spawned, ASSET_MIRROR_URL: url, ADMIN_TOKEN: 'the-token-of-the-operators' };
    return new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
      execFile(process.execPath, ['src/main.ts', 'verify', ...args], { env }, (error, stdout, stderr) =>
        resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
      );
    });
  }

  test('verify exits with 0 without differences, and --all prints a line for each object', async () => {
    const plain = await verify();
    expect(plain).toMatchObject({ code: 0, stderr: '' });
    expect(plain.stdout).toMatch(
      /^Objects: 2 as expected\nCompared sizes .* in .*\nNo differences\.\nIn the dashboard: http:\S+\/#\/verify\/\S+\n$/,
    );
    const all = await verify(['--all', '--deep']);
    expect(all.code).toBe(0);
    expect(all.stdout.split('\n').slice(0, 2)).toEqual([`= ${key}`, `= ${key}.asset.json`]);
    expect(all.stdout).toMatch(/Compared every byte \([\d.]+ \w+\)/);
  });

  test('the explanation of an asset has the latest finding about it, and the present state of its objects', async () => {
    const explain = async () => (await scene.mirror.api('GET', `/assets/${id}`)).explanation.join('\n');
    const finding = /\nThe verification of \S+Z found: \S+: missing in the bucket: the media\./;
    expect(await explain()).toMatch(/^It is in the bucket .*\n[\s\S]*just now: all 2 objects are there\.$/);
    const body = await contentOf(scene.storage, key);
    await scene.storage.remove(key);
    const missing = /^It should be in the bucket [\s\S]*just now: \S+: missing in the bucket: the media\.\nRepair it/;
    expect(await explain()).toMatch(missing);
    expect(await explain()).not.toMatch(finding);
    await verify();
    expect(await explain()).toMatch(missing);
    expect(await explain()).toMatch(finding);
    await scene.storage.put(key, body!);
    expect(await explain()).toMatch(/^It is in the bucket [\s\S]* found: [\s\S]*all 2 objects are there\.$/);
    await verify();
    expect(await explain()).not.toMatch(finding);

    // Only a verification that reads the content again, too, can say that it is right.
    const damaged = /\nThe verification of \S+Z found: /;
    await scene.storage.put(key, Buffer.alloc(body!.length, 1));
    await verify(['--deep']);
    expect(await explain()).toMatch(damaged);
    await scene.storage.put(key, body!);
    await verify();
    expect(await explain()).toMatch(damaged);
    await verify(['--deep']);
    expect(await explain()).not.toMatch(damaged);
  });

  test('verify exits with 1 if it finds differences, prints them, and --repair removes them', async () => {
    await scene.storage.remove(key);
    await scene.storage.put('stranger.txt', 'hello');
    await scene.storage.put('stranger \u001b[1A.txt', 'hello');
    const found = await verify();
    expect(found.code).toBe(1);
    expect(found.stdout).toContain(`- ${key}\n    missing in the bucket: the media\n`);
    // It cannot move the cursor.
    expect(found.stdout).toContain('+ stranger \\u{1b}[1A.txt\n');
    expect(found.stdout).toContain('+ stranger.txt\n    no record names it\n');
    expect(found.stdout).toMatch(/\nObjects: 1 as expected, 1 missing, 2 in no record\n.*\n.*--repair/);

    const json = await verify(['--json', '--repair']);
    expect(json.code).toBe(1);
    const lines = json.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    // Assets that have just settled are compared last.
    const marked = (mark: string) => lines.filter((line) => line.mark === mark);
    expect(marked('-')).toEqual([expect.objectContaining({ key, kind: 'media', difference: true })]);
    expect(marked('+')).toEqual([
      expect.objectContaining({ key: 'stranger \u001b[1A.txt', difference: true }),
      expect.objectContaining({ key: 'stranger.txt', difference: true }),
    ]);
    expect(lines).toHaveLength(4);
    expect(lines.at(-1)).toMatchObject({ summary: { status: 'done', differences: 3, counts: { repaired: 1 } } });

    await scene.mirror.quiet();
    for (const name of ['stranger.txt', 'stranger \u001b[1A.txt']) await scene.storage.remove(name);
    expect(await verify(['--deep'])).toMatchObject({ code: 0, stdout: expect.stringContaining('Objects: 2 as') });
  });

  test('verify --repair --wait ends when a second verification finds no difference', async () => {
    await scene.storage.remove(key);
    await scene.storage.put('stranger.txt', 'hello');
    const repaired = await verify(['--repair', '--wait', '--ignore-foreign']);
    expect(repaired.stdout).toMatch(/Waiting for the repairs[\s\S]*\nNo differences\.\n/);
    expect(repaired.stdout).not.toContain('+ stranger.txt');
    expect(repaired.code).toBe(0);
    expect((await verify()).code).toBe(1);
    await scene.storage.remove('stranger.txt');
    const { verifications } = await scene.mirror.api('GET', '/verify?limit=2');
    expect(verifications).toMatchObject([
      { status: 'done', differences: 1, counts: { foreign: 1 } },
      { status: 'done', differences: 0, ignoreForeign: true, counts: { foreign: 1 } },
    ]);
    expect(await verify(['--wait'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--wait needs --repair'),
    });
  });

  test('verify counts skipped assets separately, and not as differences', async () => {
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, { exclude: { assetTypes: ['videos'] } });
    const film = await scene.film({ name: 'skipped.mp4' });
    const { code, stdout } = await verify();
    expect(code).toBe(0);
    expect(stdout).toContain(`- ${film}\n    skipped.mp4: skipped by a filter: type videos\n`);
    expect(stdout).toContain('\nAssets skipped by filters: 1\n');
    expect(stdout).not.toContain('without a file in the library');
  });

  test('verify exits with 2 for wrong arguments, and with 3 if no service answers', async () => {
    expect(await verify(['--connection', 'none'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('No connection has the id, e-mail or name none'),
    });
    expect(await verify(['--depe'])).toMatchObject({ code: 2, stderr: expect.stringContaining('--deep') });
    expect(await verify([], 'http://127.0.0.1:1')).toMatchObject({ code: 3 });
  });

  test('verify --repair --wait with a connection waits for the repairs of that connection only', async () => {
    await scene.admin.addUser({ id: 'other', name: 'Other', email: 'other@example.com' });
    await scene.admin.addCompany({ id: 'other', name: 'Other', userIds: ['other'] });
    const slow = await scene.upload({ companyId: 'other' });
    // Its transfer hangs until the mirror is closed.
    await scene.admin.addFault({ endpoint: 'asset', assetId: slow, latency: 600_000 });
    await connectAs(scene.mirror, 'other');
    await scene.mirror.assetIn(slow, 'transferring');
    await scene.storage.remove(key);
    const { code, stdout } = await verify(['--repair', '--wait', '--connection', scene.connectionId]);
    expect(stdout).toMatch(
      /Objects: 1 as expected, 1 missing[\s\S]*Waiting for the repairs[\s\S]*\nNo differences\.\n/,
    );
    expect(code).toBe(0);
    expect(await scene.mirror.asset(slow)).toMatchObject({ state: 'transferring' });
  });
});
