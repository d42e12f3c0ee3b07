import { chmod, chown, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { clockFinding } from '../src/floor/finding.ts';
import { findings, of, run, wrong } from './support/doctor.ts';
import { freePort } from './support/ports.ts';

test('the doctor exits with 2 for an invalid configuration, and says what is expected', { tags: 'slow' }, async () => {
  const { code, err } = await run({ STORAGE_URL: 'ftp://nowhere' });
  expect(code).toBe(2);
  expect(err).toMatch(/STORAGE_URL is "ftp:\/\/nowhere"; expected s3:/);
});

test('the doctor creates nothing before the first start, and finds nothing wrong', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-doctor-'));
  const all = await findings({
    DATA_DIR: directory,
    LIBRARY_API_URL: `http://127.0.0.1:${await freePort()}`,
    LIBRARY_APP_URL: 'http://127.0.0.1:1',
    LIBRARY_CLIENT_ID: 'id',
    LIBRARY_CLIENT_SECRET: 'secret',
  });
  expect(wrong(all)).toEqual(['library: API']);
  expect(of(all, 'PostgreSQL')).toMatchObject({ found: 'none yet', chosen: 'the first start makes it' });
  expect(await readdir(directory)).toEqual([]);
  await rm(directory, { recursive: true });
});

test('the doctor reports a PUBLIC_URL with another port than PORT before the first start', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-doctor-'));
  const [port, other] = [await freePort(), await freePort()];
  const look = async (change: Record<string, string>) =>
    of(
      await findings({
        DATA_DIR: directory,
        PORT: String(port),
        LIBRARY_API_URL: `http://127.0.0.1:${await freePort()}`,
        LIBRARY_APP_URL: 'http://127.0.0.1:1',
        LIBRARY_CLIENT_ID: 'id',
        LIBRARY_CLIENT_SECRET: 'secret',
        ...change,
      }),
      'PUBLIC_URL',
    );
  expect(await look({})).toMatchObject({ level: 'ok', found: `nothing answers at http://localhost:${port} yet` });
  expect(await look({ PUBLIC_URL: `http://localhost:${other}` })).toMatchObject({
    level: 'note',
    found: `is http://localhost:${other}, but asset-mirror will listen at http://127.0.0.1:${port}`,
  });
  await rm(directory, { recursive: true });
});

test.runIf(process.getuid?.() === 0)('the doctor notes a DATA_DIR that other accounts may enter', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-doctor-'));
  await chmod(directory, 0o755);
  const look = async () =>
    of(
      await findings({
        DATA_DIR: directory,
        LIBRARY_API_URL: `http://127.0.0.1:${await freePort()}`,
        LIBRARY_APP_URL: 'http://127.0.0.1:1',
        LIBRARY_CLIENT_ID: 'id',
        LIBRARY_CLIENT_SECRET: 'secret',
      }),
      'DATA_DIR',
    );
  // The next start changes the mode of its own directory.
  expect(await look()).toBeUndefined();
  await chown(directory, 12345, 12345);
  expect(await look()).toMatchObject({ level: 'note', remedy: `chmod 700 ${directory}` });
  await rm(directory, { recursive: true });
});

test.each([
  [0, 'ok'],
  [-4000, 'ok'],
  [30_000, 'note'],
  [-30_000, 'note'],
  [300_000, 'wrong'],
])('the doctor finds that a clock that is %i ms off is %s', (ms, level) => {
  expect(clockFinding('library', ms, 'the service').level).toBe(level);
});
