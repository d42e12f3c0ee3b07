import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Answer } from '../../src/cli/answers.ts';
import { summaryOf } from '../../src/cli/verbs/erase.ts';
import { hashOf } from '../../src/store/removals/tombstones.ts';
import { ask } from '../support/database.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { spawned } from '../support/spawned.ts';

describe('the verbs that remove on purpose', () => {
  let scene: Scene;
  let directory: string;
  let ids: string[];
  beforeAll(async () => {
    scene = await newScene({ environment: { GONE_RETENTION: '30d' } });
    directory = await mkdtemp(join(tmpdir(), 'asset-mirror-erase-'));
    ids = await Promise.all(['one', 'two', 'three'].map((name) => scene.upload({ name })));
    await scene.resync();
    await scene.mirror.quiet();
  });
  afterAll(async () => {
    await scene?.close();
    await rm(directory, { recursive: true, force: true });
  });

  function run(...args: string[]) {
    const token = 'the-token-of-the-operators';
    const env = { ...spawned, ASSET_MIRROR_URL: scene.ground.publicUrl, ADMIN_TOKEN: token };
    return new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
      execFile(process.execPath, ['src/main.ts', ...args], { env }, (error, stdout, stderr) =>
        resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
      );
    });
  }

  test('the summary of an erasure counts what is locked apart from what was removed', () => {
    const remaining = [{ key: 'a', versionId: 'v', bytes: 2048, lockedUntil: null }];
    const assets = { waiting: 0, erased: 1, held: 2 };
    const certificate = { assets, objects: 3, bytes: 3072, remaining } as unknown as Answer<'certificate'>;
    expect(stripVTControlCharacters(summaryOf(certificate)).split('\n')).toEqual([
      'Erased 1 asset: 2 objects of 1.0 KiB.',
      'Locked, and removed when the lock ends: 1 object of 2.0 KiB.',
      'Protected by a hold: 2 assets.',
    ]);
  });

  test('erase asks first, and writes a certificate of what it removed', { tags: 'slow' }, async () => {
    const [one, two] = ids as [string, string];
    const unsure = await run('erase', one, '--reason', 'requested');
    expect(unsure).toMatchObject({ code: 2, stdout: '' });
    expect(unsure.stderr).toMatch(/this erases 1 asset \(5 B of media\) for good; add --yes to confirm/);
    expect(await scene.keys(one)).toHaveLength(2);

    const path = join(directory, 'certificate.json');
    const erased = await run('erase', one, '--reason', 'requested', '--yes', '--certificate', path);
    expect(erased).toMatchObject({ code: 0, stderr: '' });
    expect(erased.stdout).toMatch(/Erased 1 asset: 2 objects of .*\nCertificate: /);
    const certificate = JSON.parse(await readFile(path, 'utf8'));
    expect(certificate).toMatchObject({
      reason: 'requested',
      erased: [{ sha256: hashOf(one), objects: 2 }],
      remaining: [],
    });
    expect(await scene.keys(one)).toEqual([]);
    const explained = await run('explain', one);
    expect(explained.stderr).toMatch(/was erased on .*: requested/);

    expect((await run('hold', two, '--reason', 'case 42')).stdout).toBe(`Protected from removal: asset ${two}.\n`);
    expect((await run('hold')).stdout).toMatch(new RegExp(`asset +${two} .*case 42`));
    const held = await run('erase', two, '--reason', 'requested', '--yes', '--json');
    expect(held.code).toBe(1);
    expect(JSON.parse(held.stdout)).toMatchObject({ assets: { erased: 0, held: 1 } });
    expect(await scene.keys(two)).toHaveLength(2);
    expect((await run('release', two)).stdout).toBe(`No longer protected from removal: asset ${two}.\n`);

    const all = await run('erasures');
    expect(all.stdout).toMatch(/^ERASURE .*REASON\n/);
    const again = await run('erasures', certificate.id, '--json');
    expect(JSON.parse(again.stdout)).toEqual(certificate);
  });

  test('wrong use is refused with exit code 2, and changes nothing', { tags: 'slow' }, async () => {
    const [, two] = ids as [string, string];
    expect((await run('erase', two)).stderr).toMatch(/--reason/);
    expect(await run('erase', two, '--company', 'acme', '--reason', 'r', '--yes')).toMatchObject({ code: 2 });
    expect(await run('erase', '--reason', 'r', '--yes')).toMatchObject({ code: 2 });
    expect(await run('erase', 'no-such-asset', '--reason', 'r', '--yes')).toMatchObject({ code: 2 });
    expect(await run('release')).toMatchObject({ code: 2 });
    const path = join(directory, 'there.json');
    await writeFile(path, 'of another erasure');
    for (const [at, why] of [
      [path, /there is such a file already/],
      [join(directory, 'no', 'such.json'), /no file can be written there/],
    ] as const) {
      const refused = await run('erase', two, '--reason', 'r', '--yes', '--certificate', at);
      expect(refused).toMatchObject({ code: 2, stderr: expect.stringMatching(why) });
    }
    expect(await scene.keys(two)).toHaveLength(2);
  });

  test('removals and status show what is removed in the next week', { tags: 'slow' }, async () => {
    const three = ids[2]!;
    expect((await run('removals')).stdout).toMatch(/after 30d 0h\.\nNone in the next 7 days\.\n$/);
    await scene.admin.removeAsset(three);
    await scene.resync();
    await scene.mirror.assetIn(three, 'gone');
    await ask(
      scene.ground.environment.DATABASE_URL!,
      `UPDATE assets SET gone_at = now() - interval '29 days' WHERE id = '${three}'`,
    );
    expect((await run('removals')).stdout).toMatch(
      new RegExp(`In the next 7 days: 1 asset, 5 B\\.\n\nASSET .*\n${three} `),
    );
    expect((await run('status')).stdout).toContain('1 will be removed from the bucket in the next 7 days');
    expect((await run('explain', three)).stdout).toMatch(/removed from the bucket after .* \(GONE_RETENTION\)/);
    await run('hold', three);
    expect((await run('explain', three)).stdout).toMatch(/A hold protects its files/);
    expect((await run('removals')).stdout).toMatch(/None in the next 7 days/);
  });
});
