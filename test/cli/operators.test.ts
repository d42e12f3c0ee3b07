import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { program } from '../../src/cli/program.ts';
import { shells } from '../../src/cli/verbs/completion.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { spawned } from '../support/spawned.ts';
import { until } from '../support/until.ts';

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

  const client = () => ({
    ...spawned,
    ASSET_MIRROR_URL: scene.ground.publicUrl,
    ADMIN_TOKEN: 'the-token-of-the-operators',
  });
  function run(args: string[], environment: Record<string, string> = {}) {
    const env = { ...client(), ...environment };
    return new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
      execFile(process.execPath, ['src/main.ts', ...args], { env }, (error, stdout, stderr) =>
        resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
      );
    });
  }

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

  test('set prints and changes the settings of a connection', { tags: 'slow' }, async () => {
    const set = await run(['set', id, '--exclude', 'type=videos', '--exclude', 'type=audio', '--interval', '15m']);
    expect(set.stdout).toMatch(/interval +15m 00s\n.*\nexclude +type=videos type=audio\n/);
    const slips = ['company=acmé', 'project=p\u001b[31m', `project=${'x'.repeat(300)}`, 'type=film'].flatMap((slip) => [
      '--exclude',
      slip,
    ]);
    const refused = await run(['set', id, ...slips]);
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain('This connection cannot read a company acmé. It reads acme (Acme).');
    expect(refused.stderr).toMatch(/No asset belongs to a project p[^\u001b]*\. The projects are /);
    expect(refused.stderr).toContain('No asset has the type film. The types are videos, ');
    expect(refused.stderr).toMatch(/ Correct the names, or accept them with --force\.\n$/);
    expect((await run(['set', id])).stdout).toMatch(/exclude +type=videos type=audio\n/);
    expect((await run(['set', id, ...slips, '--force'])).stdout).toContain('No asset has the type film.');
    expect((await run(['set', id, '--exclude', 'none', '--interval', 'default'])).stdout).toMatch(/exclude +nothing\n/);
    expect((await run(['set', id, '--exclude', 'default', '--json'])).code).toBe(0);
    expect((await run(['set', id])).stdout).toMatch(/^interval .*\(default\)\n.*\nexclude +nothing {2}\(default\)\n/);
    expect(await run(['set'])).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^bandwidth +no limit {2}\(BANDWIDTH_LIMIT of the process that answered\)\n/),
    });
    await run(['set', '--bandwidth', '20MiB/s']);
    expect((await run(['set'])).stdout).toMatch(/^bandwidth +20\.0 MiB\/s in each process\n/);
    const timetable = 'Mon-Sun 00:00-24:00 10MiB/s, else unlimited Europe/Berlin';
    expect((await run(['set', '--bandwidth', timetable])).stdout).toContain(
      `at most 10.0 MiB/s, by the timetable ${timetable}.`,
    );
    expect((await run(['set'])).stdout).toContain(`bandwidth    ${timetable}; now 10.0 MiB/s in each process\n`);
    expect((await run(['set', id, '--bandwidth', 'Mon 10MiB'])).stderr).toContain('or unlimited, in place of "10MiB"');
    expect(JSON.parse((await run(['set', '--bandwidth', 'default', '--json'])).stdout)).toEqual(
      JSON.parse((await run(['set', '--json'])).stdout),
    );
    expect((await run(['set', '--interval', '5m'])).code).toBe(2);
    for (const wrong of [
      ['--include', 'videos'],
      ['--interval', '5'],
      ['--bandwidth', '5'],
      ['--concurrency', 'x'],
    ]) {
      expect(await run(['set', id, ...wrong])).toMatchObject({ code: 2, stderr: expect.stringContaining(wrong[0]!) });
    }
    await scene.mirror.quiet();
  });

  test('tags are set, shown, filtered by, and removed, and a link carries them', { tags: 'slow' }, async () => {
    const tagged = await run(['set', id, '--tag', 'client=Ömer & Co', '--tag', 'tier=gold']);
    expect(tagged.stdout).toMatch(/\ntags +tier=gold client=Ömer & Co\n/);
    expect((await run(['connections'])).stdout).toMatch(
      /^CONNECTION .* COMPANIES +TAGS .*\n.* tier=gold client=Ömer & Co /,
    );
    expect((await run(['connections', '--tag', 'tier=gold', '--tag', 'client=Ömer & Co'])).stdout).toContain(id);
    for (const other of [['tier=silver'], ['tier=gold', '--tag', 'client=acme']]) {
      expect((await run(['connections', '--tag', ...other])).stdout).toBe('No connection matches.\n');
    }
    const untagged = await run(['set', id, '--untag', 'tier', '--untag', 'unknown', '--json']);
    expect(JSON.parse(untagged.stdout)).toMatchObject({ tags: { client: 'Ömer & Co' } });
    await run(['set', id, '--untag', 'client']);
    expect((await run(['set', id])).stdout).toMatch(/\ntags +none\n/);
    expect((await run(['connections'])).stdout).not.toContain('TAGS');
    const link = new URL((await run(['connect-link', '--tag', 'client=acme', '--tag', 'tier=gold'])).stdout.trim());
    const [payload] = link.searchParams.get('link')!.split('.');
    expect(JSON.parse(Buffer.from(payload!, 'base64url').toString()).t).toEqual({ client: 'acme', tier: 'gold' });
    for (const wrong of [
      ['connect-link', '--tag', 'Client=acme'],
      ['connect-link', '--tag', 'client'],
      ['set', id, '--tag', 'client= '],
      ['set', id, '--untag', 'client=acme'],
      ['connections', '--tag', 'client'],
    ]) {
      expect(await run(wrong)).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('key=value such as client=acme'),
      });
    }
    expect(await run(['connect-link', '--return-url', 'https://agency.example/'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('CONNECT_RETURN_ORIGINS is empty'),
    });
    expect((await run(['set', '--tag', 'client=acme'])).stderr).toContain('--tag needs a connection');
    expect((await run(['set', '--hold-missing', '5%'])).stderr).toContain('--hold-missing needs a connection');
  });

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
    const { bucket } = JSON.parse((await run(['resync', id, '--full', '--wait', '--json'])).stdout);
    expect(bucket).toMatchObject({ status: 'done', missing: 0, different: 0 });
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
      env: client(),
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

  test('webhook endpoints are added, listed, changed and removed on the command line', { tags: 'slow' }, async () => {
    const added = await run([
      'webhooks',
      'add',
      'https://hooks.example.com/key',
      '--kind',
      'asset.mirrored',
      '--company',
      'acme',
    ]);
    expect([added.code, added.stderr]).toEqual([0, '']);
    expect(added.stdout).toMatch(
      /address +https:\/\/hooks\.example\.com\/…\n[\s\S]*asset\.mirrored[\s\S]*\nwhsec_[\w+/]{43}=\n$/,
    );
    const [id] = /^ep_\w+/.exec(added.stdout)!;
    const changed = await run([
      'webhooks',
      'set',
      id,
      '--disable',
      '--no-filters',
      '--description',
      'Archive',
      '--json',
    ]);
    expect(JSON.parse(changed.stdout)).toMatchObject({
      id,
      state: 'disabled',
      filters: {},
      kinds: ['asset.mirrored'],
      secret: null,
    });
    expect((await run(['webhooks', 'list'])).stdout).toMatch(
      new RegExp(`${id} +disabled +0 .*asset.mirrored.*Archive`),
    );
    expect((await run(['webhooks', 'add', 'nonsense'])).code).toBe(2);
    expect((await run(['webhooks', 'add', 'https://x.com', '--kind', 'asset.seen'])).code).toBe(2);
    expect((await run(['webhooks', 'deliveries', id, '--state', 'failed'])).stdout).toBe('No messages.\n');
    expect((await run(['webhooks', 'redeliver', id, '--failed-since', '2026-01-31'])).stdout).toBe(
      'Sending 0 messages again.\n',
    );
    for (const wrong of [[], ['msg_1'], ['--failed-since', 'now'], ['msg_1', '--failed-since', '2026-01-31']])
      expect((await run(['webhooks', 'redeliver', id, ...wrong])).code).toBe(2);
    expect((await run(['webhooks', 'remove', id])).stdout).toBe(`Removed ${id}.\n`);
    expect((await run(['webhooks', 'test', id])).code).toBe(2);
  });

  test('webhooks test names the missing settings if no endpoint is configured', async () => {
    const { code, stderr } = await run(['webhooks', 'test']);
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(/^asset-mirror: No webhook endpoint is configured\. Set WEBHOOK_URL/),
    ]);
  });

  test('resync --wait prints once why a connection waits, and until when', { tags: 'slow' }, async () => {
    const delay = (ms: number, text: string) => scene.mirror.store.connections.delay(id, ms, { code: 'error', text });
    onTestFinished(() => scene.ground.endWaits());
    // The command waits for a delay of less than five minutes.
    await delay(240_000, 'read /me: the library asked to wait (429)');
    const child = spawn(process.execPath, ['src/main.ts', 'resync', id, '--wait'], { env: client() });
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
    const env = { ...client(), ASSET_MIRROR_URL: own.ground.publicUrl };
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

  test('pause, resume and disconnect change a connection; disconnect needs a confirmation', {
    tags: 'slow',
  }, async () => {
    expect((await run(['pause', id])).stdout).toContain('is paused');
    expect(await run(['resync', id])).toMatchObject({
      code: 1,
      stderr:
        'asset-mirror: The connection is paused. Resume it first, with `asset-mirror resume` or in the dashboard.\n',
    });
    expect(JSON.parse((await run(['resume', id, '--json'])).stdout)).toMatchObject({ id, status: 'active' });
    expect(await run(['disconnect', id])).toMatchObject({ code: 2, stderr: expect.stringContaining('--yes') });
    expect((await scene.mirror.api('GET', `/connections/${id}`)).status).toBe('active');
    expect(await run(['disconnect', id, '--yes'])).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('is disconnected'),
    });
    expect((await run(['disconnect', id, '--yes'])).stdout).toContain('was disconnected already');
    expect(await scene.mirror.connect()).toBe(id);
  });

  test("a connection can be named by its id, the beginning of it, or its user's e-mail or name", {
    tags: 'slow',
  }, async () => {
    const { user } = await scene.mirror.api('GET', `/connections/${id}`);
    for (const name of [id, id.slice(0, 8), user.email.toUpperCase(), user.name]) {
      expect(JSON.parse((await run(['set', name, '--json'])).stdout), name).toHaveProperty('syncInterval');
      expect((await run(['syncs', '--connection', name])).code, name).toBe(0);
    }
    const { code, stderr } = await run(['assets', '--connection', 'nobody']);
    expect([code, stderr]).toEqual([2, expect.stringContaining('No connection has the id, e-mail or name nobody')]);
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

  test('errors are printed as JSON on stderr with --json', async () => {
    const [unknown, option, away] = await Promise.all([
      run(['explain', 'nothing', '--json']),
      run(['assets', '--colour', '--json']),
      run(['status', '--json'], { ASSET_MIRROR_URL: 'http://127.0.0.1:1' }),
    ]);
    expect(JSON.parse(unknown.stderr)).toMatchObject({
      status: 404,
      code: expect.any(String),
      requestId: expect.any(String),
    });
    expect(JSON.parse(option.stderr)).toEqual({ code: 'wrong_usage', detail: "unknown option '--colour'" });
    expect(JSON.parse(away.stderr)).toMatchObject({
      code: 'not_reachable',
      detail: expect.stringContaining('No asset-mirror'),
    });
    expect([unknown, option, away].map(({ code }) => code)).toEqual([2, 2, 3]);
  });

  test.each([
    [['assets', '--state', '\u001b[2J']],
    [['assets', '--\u001b[2J']],
    [['\u001b[2J']],
    [['retry', '\u001b[31m\u001b[2J']],
    [['explain', '\u001b[2J']],
  ])('a refused argument is printed without control characters: %j', async (args) => {
    const { code, stdout, stderr } = await run(args);
    expect(code).toBe(2);
    expect(stdout + stderr).toContain('\\u{1b}[2J');
    expect(stdout + stderr).not.toContain('\u001b');
  });

  test.each<[string, string[], Record<string, string>, number]>([
    ['no service answers', ['status'], { ASSET_MIRROR_URL: 'http://127.0.0.1:1' }, 3],
    ['no service has events to follow', ['events', '--follow'], { ASSET_MIRROR_URL: 'http://127.0.0.1:1' }, 3],
    ['the token is wrong', ['connections'], { ADMIN_TOKEN: 'another-token-of-the-operators' }, 2],
    ['another service answers', ['status'], { ASSET_MIRROR_URL: 'the library' }, 3],
    ['an option is unknown', ['assets', '--colour'], {}, 2],
    ['a value is not allowed', ['assets', '--state', 'lost'], {}, 2],
    ['a shell is unknown', ['completion', 'tcsh'], {}, 2],
    ['the connection is unknown', ['pause', 'nobody'], {}, 2],
    ['the connection of events is unknown', ['events', '--connection', 'nobody'], {}, 2],
    ['the asset of events is unknown', ['events', '--asset', 'nosuch'], {}, 2],
    ['the asset of events to follow is unknown', ['events', '--asset', 'nosuch', '--follow'], {}, 2],
    ['a setting is out of its range', ['set', 'ID', '--interval', '1ms'], {}, 2],
    ['the address has a password', ['status'], { ASSET_MIRROR_URL: 'http://u:geheim@127.0.0.1:1' }, 2],
  ])('the exit code is right if %s', async (_, args, environment, code) => {
    const places = Object.entries(environment).map(([name, value]) => [
      name,
      value === 'the library' ? scene.library.apiUrl : value,
    ]);
    const ended = await run(
      args.map((arg) => (arg === 'ID' ? scene.connectionId : arg)),
      Object.fromEntries(places),
    );
    expect(ended.code).toBe(code);
    expect(ended.stderr).not.toContain('geheim');
    expect(ended.stderr).toMatch(/\S/);
    expect(ended.stdout).toBe('');
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

  test('each command has a help text with a description', async () => {
    const app = program({} as never, '1.0.0');
    expect(app.commands.length).toBeGreaterThan(15);
    for (const command of [...app.commands, ...app.commands.flatMap((it) => it.commands)]) {
      const path = command.parent === app ? command.name() : `${command.parent!.name()} ${command.name()}`;
      expect(command.helpInformation(), path).toMatch(new RegExp(`^Usage: asset-mirror ${path}.*\n\n[A-Z][^]*\\.\n`));
      expect(app.helpInformation(), path).toContain(`\n  ${path.split(' ')[0]}`);
    }
    const completion = app.commands.find((command) => command.name() === 'completion')!;
    for (const shell of shells) expect(completion.helpInformation()).toContain(shell);
  });
});
