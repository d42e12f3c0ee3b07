import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newScene, type Scene } from '../support/scene.ts';
import { runIn } from './operator.ts';

describe('commands of operators', () => {
  let scene: Scene;
  let id: string;
  beforeAll(async () => {
    scene = await newScene();
    id = scene.connectionId;
    await scene.upload();
    await scene.resync();
    await scene.mirror.quiet();
  });
  afterAll(async () => {
    await scene?.close();
  });
  const run = (args: string[], environment: Record<string, string> = {}) => runIn(scene, args, environment);

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
    for (const [option, value, problem] of [
      ['--include', 'videos', '--include videos: expected'],
      ['--interval', '5', 'syncInterval: expected'],
      ['--bandwidth', '5', 'bandwidth: expected'],
      ['--hold-missing', '5', 'holdMissing: expected'],
      ['--concurrency', 'x', '--concurrency x: expected'],
    ] as const) {
      const answer = await run(['set', id, option, value]);
      expect(answer).toMatchObject({ code: 2, stderr: expect.stringContaining(problem) });
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
});
