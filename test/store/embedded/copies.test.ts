import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
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
