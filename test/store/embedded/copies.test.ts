import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, copyFile, mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { copyPrograms } from '../../../src/store/embedded/copies.ts';

let directory: string;
let home: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'asset-mirror-copies-'));
  home = join(directory, 'home');
});
afterAll(() => rm(directory, { recursive: true, force: true }));

/** A package with programs of this version. */
async function installation(version: string): Promise<string> {
  const path = join(directory, version);
  await mkdir(join(path, 'native/bin'), { recursive: true });
  await writeFile(join(path, 'package.json'), JSON.stringify({ version }));
  await copyFile('/bin/sleep', join(path, 'native/bin/sleep'));
  return path;
}

test.runIf(process.platform === 'linux')(
  'programs are copied once per version, and copies of other versions stay only while a process runs from them',
  async () => {
    expect(await copyPrograms(await installation('1.0.0'), home)).toBe(join(home, 'postgresql-1.0.0/bin'));
    const bin = await copyPrograms(await installation('2.0.0'), home);
    expect(await readdir(home)).toEqual(['postgresql-2.0.0']);

    const running = spawn(join(bin, 'sleep'), ['600'], { stdio: 'ignore' });
    const ended = once(running, 'exit');
    await once(running, 'spawn');
    const next = await installation('3.0.0');
    await Promise.all([copyPrograms(next, home), copyPrograms(next, home)]);
    expect((await readdir(home)).sort()).toEqual(['postgresql-2.0.0', 'postgresql-3.0.0']);
    running.kill('SIGKILL');
    await ended;
    await copyPrograms(next, home);
    expect(await readdir(home)).toEqual(['postgresql-3.0.0']);
  },
);

test.runIf(process.platform === 'linux').each([
  ['private', 0o700, 0o600],
  ['open to all', 0o777, 0o666],
])(
  'every account can run copied programs and only ours can change them, also if the package is %s',
  async (_, runs, reads) => {
    const path = await installation(`4.0.${runs}`);
    await mkdir(join(path, 'native/lib'));
    await writeFile(join(path, 'native/lib/library'), '');
    await chmod(join(path, 'native/lib/library'), reads);
    for (const file of ['native/bin/sleep', 'native/bin', 'native/lib', 'native']) await chmod(join(path, file), runs);
    const bin = await copyPrograms(path, join(directory, `home-${runs}`));
    const modeOf = async (file: string) => (await stat(join(bin, '..', file))).mode & 0o777;
    for (const file of ['.', 'bin', 'bin/sleep', 'lib']) expect(await modeOf(file)).toBe(0o755);
    expect(await modeOf('lib/library')).toBe(0o644);
  },
);
