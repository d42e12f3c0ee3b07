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
    const disabled = await run(['webhooks', 'redeliver', id, '--failed-since', '2026-01-31']);
    expect(disabled).toMatchObject({ code: 1, stderr: expect.stringContaining(`webhooks set ${id} --enable`) });
    await run(['webhooks', 'set', id, '--enable']);
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
});
