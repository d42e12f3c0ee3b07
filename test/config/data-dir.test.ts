// @module-tag slow
import { chmod, chown, mkdir, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeDataDir } from '../../src/config/preflight.ts';
import { createLog } from '../../src/floor/log.ts';

describe('DATA_DIR', () => {
  let directory: string;
  let path: string;
  let lines: string[];
  const log = createLog({
    level: 'info',
    pretty: false,
    destination: new Writable({
      write(line, _, done) {
        lines.push(String(line));
        done();
      },
    }),
  });
  const modeOf = async (of: string) => (await stat(of)).mode & 0o7777;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'asset-mirror-data-'));
    path = join(directory, 'parent/data');
    lines = [];
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  test('a new DATA_DIR is accessible to its owner only', async () => {
    await makeDataDir(path, log);
    expect(await modeOf(path)).toBe(0o700);
    expect(await modeOf(dirname(path))).toBe(0o777 & ~process.umask());
    expect(lines).toEqual([]);
  });

  test('a DATA_DIR that other accounts may enter is closed to them, which is logged once', async () => {
    await mkdir(path, { recursive: true });
    await chmod(path, 0o755);
    await makeDataDir(path, log);
    await makeDataDir(path, log);
    expect(await modeOf(path)).toBe(0o700);
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ level: 'warn', directory: path }]);
  });

  test.runIf(process.getuid?.() === 0)(
    'a DATA_DIR of another account, or with a sticky bit, keeps its mode',
    async () => {
      await mkdir(path, { recursive: true });
      await chmod(path, 0o1777);
      await makeDataDir(path, log);
      expect(await modeOf(path)).toBe(0o1777);
      await chmod(path, 0o755);
      await chown(path, 12345, 12345);
      await makeDataDir(path, log);
      expect(await modeOf(path)).toBe(0o755);
      expect(lines).toEqual([]);
    },
  );
});
