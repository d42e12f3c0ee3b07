import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { clientOf, runIn } from './operator.ts';

describe('commands of operators', () => {
  let scene: Scene;
  let id: string;
  let whole: string;
  beforeAll(async () => {
    scene = await newScene();
    id = scene.connectionId;
    whole = await scene.upload({ name: 'interview.mov' });
    const other = await scene.upload({ name: 'another.mov' });
    await scene.resync();
    for (const asset of [whole, other]) await scene.mirror.assetIn(asset, 'mirrored');
  });
  afterAll(async () => {
    await scene?.close();
  });
  const run = (args: string[], environment: Record<string, string> = {}) => runIn(scene, args, environment);

  test('resync --wait returns when everything is mirrored, and exits with 1 if anything failed', {
    tags: 'slow',
  }, async () => {
    const more = await scene.upload({ name: 'more.mov' });
    const done = await run(['resync', id, '--wait']);
    expect(done).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/\n✓ \d+ seen, 1 new, .* 3 mirrored in total\.\n$/),
    });
    expect((await scene.mirror.asset(more)).state).toBe('mirrored');

    const broken = await scene.upload({ name: 'broken too.mov' });
    await scene.admin.addFault({ endpoint: 'asset', assetId: broken, body: { asset: 'nonsense' } });
    const json = await run(['resync', id, '--wait', '--json']);
    expect(json.code).toBe(1);
    expect(JSON.parse(json.stdout)).toMatchObject({ sync: { status: 'done', new: 1 }, failed: 1 });
    // It fails again, so the number of failed assets does not change.
    const again = await run(['resync', id, '--full', '--wait', '--json']);
    expect(again.code).toBe(1);
    expect(JSON.parse(again.stdout)).toMatchObject({ sync: { status: 'done' }, failed: 1 });
    expect(await run(['resync', id, '--wait'])).toMatchObject({ code: 0 });
    await scene.admin.clearFaults();
    // The sync gets the asset, and the worker gets nonsense again.
    const body = { asset: 'nonsense' };
    await scene.admin.addFault({ endpoint: 'asset', assetId: broken, skip: 1, body });
    const named = await run(['resync', id, '--asset', broken, '--wait', '--json']);
    expect(named.code).toBe(1);
    expect(JSON.parse(named.stdout)).toMatchObject({ sync: { status: 'done' }, failed: 1 });
    await scene.admin.clearFaults();
  });

  test('resync --full --wait also waits for the verification, and says what was repaired', {
    tags: 'slow',
  }, async () => {
    // Failed assets come with the first.
    await run(['resync', id, '--full', '--wait']);
    const compared = await run(['resync', id, '--full', '--wait']);
    expect(compared.stdout).toMatch(/✓ .* mirrored in total\.\nBucket verified: no differences\.\n/);

    const path = join(new URL(scene.ground.environment.STORAGE_URL!).pathname, (await scene.mirror.asset(whole)).key!);
    const bytes = await readFile(path);
    await rm(path);
    const repaired = await run(['resync', id, '--full', '--wait']);
    expect(repaired.stdout).toMatch(/! Bucket verified: 1 missing; repairing 1 asset\.\n/);
    expect(await readFile(path)).toEqual(bytes);
    expect(repaired.code).toBe(0);
    const { bucket } = JSON.parse((await run(['resync', id, '--full', '--wait', '--json'])).stdout);
    expect(bucket).toMatchObject({ status: 'done', missing: 0, different: 0 });
  });

  test('resync --wait exits with 1 if a change of the company waits for an operator', { tags: 'slow' }, async () => {
    await scene.mirror.api('PATCH', `/connections/${id}`, { holdReplaced: { percent: 1, assets: 0 } });
    await scene.admin.changeAsset(whole, { content: { text: 'another film' } });
    const held = await run(['resync', id, '--full', '--wait']);
    expect(held).toMatchObject({ code: 1, stdout: expect.stringContaining('--accept-replaced') });
    expect(await run(['resync', id, '--accept-replaced', '--wait'])).toMatchObject({ code: 0 });
  });

  test('resync --wait exits with 1 if a file is missing that cannot be repaired', { tags: 'slow' }, async () => {
    // The library has deleted this asset, so its file cannot be repaired.
    const gone = await scene.upload({ name: 'gone.mov' });
    await run(['resync', id, '--wait']);
    await scene.admin.removeAsset(gone);
    await rm(join(new URL(scene.ground.environment.STORAGE_URL!).pathname, (await scene.mirror.asset(gone)).key!));
    const lost = await run(['resync', id, '--full', '--wait']);
    expect(lost).toMatchObject({ code: 1, stdout: expect.stringMatching(/! Bucket verified: 1 missing; repairing 0/) });
  });

  test('resync --wait prints once why a connection waits, and until when', { tags: 'slow' }, async () => {
    const delay = (ms: number, text: string) => scene.mirror.store.connections.delay(id, ms, { code: 'error', text });
    onTestFinished(() => scene.ground.endWaits());
    // The command waits for a delay of less than five minutes.
    await delay(240_000, 'read /me: the library asked to wait (429)');
    const child = spawn(process.execPath, ['src/main.ts', 'resync', id, '--wait'], { env: clientOf(scene) });
    let [out, said] = ['', ''];
    child.stdout.on('data', (chunk) => (out += chunk));
    child.stderr.on('data', (chunk) => (said += chunk));
    const ended = once(child, 'close');
    await until('the first reason', () => said.includes('asked to wait'));
    await delay(270_000, 'read /me: connect ECONNREFUSED');
    await until('the second reason', () => said.includes('ECONNREFUSED'));
    await scene.mirror.api('POST', `/connections/${id}/pause`);
    expect(await ended).toEqual([1, null]);
    expect(out).toMatch(/^Started .*\n$/);
    const [first, second, ...rest] = said.trimEnd().split('\n');
    expect(first).toMatch(/^~ The connection waits until \S+Z: read \/me: the library asked to wait \(429\)$/);
    expect(second).toMatch(/^~ The connection waits until \S+Z: .*ECONNREFUSED$/);
    expect(rest).toEqual([
      `asset-mirror: stopped waiting: the connection is paused. The rest is mirrored after \`asset-mirror resume ${id}\`.`,
    ]);
    await scene.mirror.api('POST', `/connections/${id}/resume`);
  });

  test('resync --wait prints once that the bucket is unavailable, and Ctrl-C ends the wait', {
    tags: 'slow',
  }, async () => {
    const own = await newScene();
    onTestFinished(() => own.close());
    const bucket = fileURLToPath(own.ground.environment.STORAGE_URL!);
    // A file at the path: not even root can write below it.
    await rename(bucket, `${bucket}.aside`);
    await writeFile(bucket, '');
    await own.upload({ name: 'waits.mov' });
    const env = { ...clientOf(scene), ASSET_MIRROR_URL: own.ground.publicUrl };
    const child = spawn(process.execPath, ['src/main.ts', 'resync', own.connectionId, '--wait', '--json'], { env });
    let [out, said] = ['', ''];
    child.stdout.on('data', (chunk) => (out += chunk));
    child.stderr.on('data', (chunk) => (said += chunk));
    const ended = once(child, 'close');
    await until('the reason', () => said.includes('The bucket is unavailable'));
    child.kill('SIGINT');
    expect(await ended).toEqual([130, null]);
    expect(said).toMatch(
      /^~ The bucket is unavailable, so all assets wait: .*a file has the path.*\nStopped waiting\. The work continues in asset-mirror: .*\n$/,
    );
    expect(out).toBe('');
  });

  test('resync --wait ends if the rest is not mirrored soon, and says what waits, why, and what to do', {
    tags: 'slow',
  }, async () => {
    const own = await newScene();
    onTestFinished(() => own.close());
    const wait = () => run(['resync', own.connectionId, '--wait'], { ASSET_MIRROR_URL: own.ground.publicUrl });
    const reason = { code: 'error', text: 'the library asked to wait (429)' } as const;
    await own.mirror.store.connections.delay(own.connectionId, 3_600_000, reason);
    expect(await wait()).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        /: stopped waiting: the connection waits until \S+Z: the library asked to wait \(429\)\. Then it continues by itself\.\n$/,
      ),
    });
    await own.ground.endWaits();

    const userId = own.library.users[0]!.id;
    await own.admin.addCompany({ id: 'beta', name: 'Beta', userIds: [userId] });
    await own.mirror.connect();
    await own.admin.setFaults({ endpoint: 'media', status: 500 });
    const waits = await own.upload({ companyId: 'beta', name: 'waits.mov' });
    await own.resync();
    await until('a failed attempt', async () => (await own.mirror.asset(waits))?.attempts > 0);
    await own.admin.setAccess('beta', userId, false);
    expect(await wait()).toMatchObject({
      code: 1,
      stderr:
        'asset-mirror: stopped waiting: 1 asset cannot be mirrored, because no connection can read its company now. ' +
        'Connect a user who can, with `asset-mirror connect-link`. ' +
        `List them with \`asset-mirror assets --state pending --connection ${own.connectionId}\`.\n`,
    });
  });

  test('resync refuses an unknown project or company, and names the known ones', { tags: 'slow' }, async () => {
    const [project, company] = await Promise.all([
      run(['resync', id, '--project', 'nope']),
      run(['resync', id, '--full', '--company', 'nope']),
    ]);
    expect(project.code).toBe(2);
    expect(project.stderr).toMatch(/No asset belongs to a project nope\. The projects are /);
    expect(company.code).toBe(2);
    expect(company.stderr).toContain('This connection cannot read a company nope. It reads acme (Acme).');
  });
});
