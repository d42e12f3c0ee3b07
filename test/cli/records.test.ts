import { spawn } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { clientOf, runIn } from './operator.ts';

describe('commands of operators', () => {
  let scene: Scene;
  let id: string;
  let whole: string;
  let failed: string;
  beforeAll(async () => {
    scene = await newScene();
    id = scene.connectionId;
    whole = await scene.upload({ name: 'interview \u001b[1A.mov' });
    await scene.resync();
    await scene.mirror.assetIn(whole, 'mirrored');
    failed = await scene.upload({ name: 'broken.mov' });
    await scene.admin.addFault({ endpoint: 'asset', assetId: failed, body: { asset: 'nonsense' } });
    await scene.resync({ mode: 'incremental' });
    await scene.mirror.assetIn(failed, 'failed');
    await scene.admin.clearFaults();
  });
  afterAll(async () => {
    await scene?.close();
  });
  const run = (args: string[], environment: Record<string, string> = {}) => runIn(scene, args, environment);

  test('list commands print connections, assets and syncs as text and as JSON', { tags: 'slow' }, async () => {
    const [connections, json, assets, runs, none] = await Promise.all([
      run(['connections']),
      run(['connections', '--status', 'active', '--json']),
      run(['assets', '--state', 'failed']),
      run(['syncs', '--limit', '2']),
      run(['assets', '--search', 'nothing of this name']),
    ]);
    expect(connections.stdout).toMatch(
      new RegExp(
        `^CONNECTION +USER +STATE +COMPANIES +MIRRORED +BYTES +FAILED +LAST SYNC +NEXT +EVERY\n${id} .* assets failed +Acme +1/2 `,
      ),
    );
    expect(JSON.parse(json.stdout).connections).toMatchObject([{ id, status: 'active' }]);
    expect(assets.stdout).toMatch(new RegExp(`^ASSET .*REASON\n${failed} +broken.mov +failed .*attempt`));
    expect(runs.stdout.trimEnd().split('\n')).toHaveLength(3);
    expect(none).toMatchObject({ code: 0, stdout: 'No asset matches.\n' });
    const all = await run(['assets', '--all', '--json']);
    const lines = all.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).id);
    expect(lines.sort()).toEqual([failed, whole].sort());
    // A name cannot move the cursor, and files get colours only on request.
    expect((await run(['assets', '--search', 'interview'])).stdout).toContain('interview \\u{1b}[1A.mov');
    expect(connections.stdout).not.toContain('\u001b');
    expect((await run(['connections'], { FORCE_COLOR: '1' })).stdout).toContain('\u001b[31massets failed');
  });

  test('plan prints what a full sync would transfer, and explain the history of one asset', {
    tags: 'slow',
  }, async () => {
    const plan = await run(['plan', id]);
    expect(plan).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        /^A full sync would transfer 1 asset, 5 B.*\n {2}1 asset, 5 B: known, not yet in the bucket\n {2}Sizes are as the library lists them/,
      ),
    });
    expect(JSON.parse((await run(['plan', '--json'])).stdout)).toMatchObject({ toMove: { assets: 1, bytes: 5 } });
    await scene.admin.setFaults({ endpoint: 'me', status: 404 });
    expect(await run(['plan'])).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(
        /^The library could not be listed\.\n✗ connection .*read \/me: the library answered 404\n$/,
      ),
    });
    await scene.admin.clearFaults();

    const [explained, why, unknown] = await Promise.all([
      run(['explain', whole]),
      run(['explain', failed]),
      run(['explain', 'nothing']),
    ]);
    expect(explained.stdout).toMatch(
      / {2}mirrored\n.*company acme.*\n\nIt is in the bucket since .*\n[\s\S]*\nsync .*\n.*seen for the first time: to be mirrored\n/,
    );
    expect(explained.stdout).not.toContain('\u001b');
    expect(why.stdout).toMatch(/ {2}failed\n[\s\S]*\nIt failed after 1 attempts?: [\s\S]*retry/);
    expect(unknown).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('Searched: 1 company of 1 active connection'),
    });
  });

  test('retry retries failed assets, and names those that cannot be retried', { tags: 'slow' }, async () => {
    expect(await run(['retry', failed, 'nothing'])).toMatchObject({
      code: 2,
      stdout: expect.stringMatching(new RegExp(`^✓ ${failed}: retrying now\n✗ nothing: There is no asset nothing`)),
    });
    await scene.mirror.assetIn(failed, 'mirrored');
    expect(await run(['retry', '--failed', '--json'])).toMatchObject({ code: 0, stdout: '{\n  "retried": 0\n}\n' });
    for (const wrong of [['retry'], ['retry', 'a', '--failed'], ['retry', 'a', '--connection', id]]) {
      expect((await run(wrong)).code, wrong.join(' ')).toBe(2);
    }
  });

  test('syncs prints the error below a failed sync', { tags: 'slow' }, async () => {
    await scene.admin.setFaults({ endpoint: 'assets', status: 403 });
    const failed = await run(['resync', id, '--company', 'acme', '--wait', '--json']);
    await scene.admin.clearFaults();
    expect(JSON.parse(failed.stdout)).toMatchObject({ sync: { status: 'failed' } });
    expect((await run(['syncs', '--limit', '2'])).stdout).toMatch(
      /^SYNC .*\n\S+ +incremental \(partial\) +failed .*\n {4}.*403.*\n\S+ +[\w ()]+ +done .*\n$/,
    );
  });

  test('events lists past events, and with --follow new ones, also after a restart of the service', {
    tags: 'slow',
  }, async () => {
    const at = '\\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z';
    const failures = await run(['events', '--kind', 'asset.failed', '--asset', failed, '--connection', id]);
    expect(failures.stdout).toMatch(new RegExp(`^${at} {2}asset.failed {2}${failed}, connection ${id} {2}.+\\n$`));
    const data = {
      since: '2026-01-31T12:00:00.000Z',
      new: 3,
      from: '2026-02-01T00:00:00.000Z',
      to: '2026-02-02T00:00:00.000Z',
    };
    await scene.mirror.store.events.add({ kind: 'connection.caught_up', connectionId: id, data });
    const after = await run(['events', '--kind', 'connection.caught_up']);
    expect(after.stdout).toMatch(
      new RegExp(
        `^${at} {2}connection.caught_up {2}connection ${id} {2}3 new assets since 2026-01-31T12:00:00.000Z, uploaded from 2026-02-01T00:00:00.000Z to 2026-02-02T00:00:00.000Z\n$`,
      ),
    );
    expect((await run(['events', '--kind', 'nothing.such'])).stdout).toMatch(/^No matching events/);
    const page = JSON.parse((await run(['events', '--limit', '2', '--json'])).stdout);
    expect(page).toMatchObject({ events: [{}, {}], nextCursor: expect.any(String) });
    expect((await run(['events', '--follow'], { ADMIN_TOKEN: 'another-token-of-the-operators' })).code).toBe(2);

    const child = spawn(process.execPath, ['src/main.ts', 'events', '--follow', '--json', '--limit', '2'], {
      env: clientOf(scene),
    });
    let [out, said] = ['', ''];
    child.stdout.on('data', (chunk) => (out += chunk));
    child.stderr.on('data', (chunk) => (said += chunk));
    const lines = () =>
      out
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line));
    const deed = (kind: string) => () => lines().find((event) => event.kind === kind);
    try {
      await until('the past', () => lines().length === 2);
      expect(lines()).toEqual(page.events.reverse());
      await scene.mirror.api('POST', `/connections/${id}/pause`);
      await until('the pause', deed('operator.pauseConnection'));
      await scene.restart();
      await scene.mirror.api('POST', `/connections/${id}/resume`);
      await until('what came after the restart', deed('operator.resumeConnection'));
      expect(said).toBe('Connection lost, reconnecting …\nConnected again.\n');
      const ids = lines().map((event) => event.id);
      expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b));
    } finally {
      child.kill('SIGINT');
    }
  });

  test('names from the library are printed without control characters', { tags: 'slow' }, async () => {
    const hostile = 'x\u001b]0;title\u0007\u009b2J\u202ey\nz';
    const users = [scene.library.users[0]!.id];
    await scene.admin.addCompany({ id: 'hostile', name: hostile, userIds: users });
    const asset = await scene.upload({ companyId: 'hostile', name: `${hostile}.mov` });
    const [plan, unknown] = await Promise.all([run(['plan']), run(['explain', hostile])]);
    await scene.resync();
    await scene.mirror.assetIn(asset, 'mirrored');
    const [assets, json] = await Promise.all([
      run(['assets', '--search', asset]),
      run(['assets', '--search', asset, '--json']),
    ]);
    const texts = [plan.stdout, unknown.stderr, assets.stdout, json.stdout, json.stderr];
    for (const text of texts) expect(text).not.toMatch(/[\u001b\u0007\u009b\u202e]/);
    for (const text of [plan.stdout, assets.stdout])
      expect(text).toContain('x\\u{1b}]0;title\\u{7}\\u{9b}2J\\u{202e}y\\u{a}z');
    expect(JSON.parse(json.stdout).assets[0].name).toBe(`${hostile}.mov`);
  });
});
