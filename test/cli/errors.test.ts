import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newScene, type Scene } from '../support/scene.ts';
import { runIn } from './operator.ts';

describe('commands of operators', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene();
  });
  afterAll(async () => {
    await scene?.close();
  });
  const run = (args: string[], environment: Record<string, string> = {}) => runIn(scene, args, environment);

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
});
