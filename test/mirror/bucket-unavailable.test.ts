// @module-tag slow
import { execFile } from 'node:child_process';
import { chmod, cp, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { expect, inject, test } from 'vitest';
import { canMount } from '../storage/grounds.ts';
import { internalError, newHttpLine } from '../support/http-line.ts';
import { contentOf, keysOf } from '../support/mirror.ts';
import { newScene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const run = promisify(execFile);

const breaker = (lines: Record<string, unknown>[]) =>
  lines.filter((line) => line.msg === 'bucket unavailable, all assets wait');

test('a directory that cannot be written to makes all assets wait with the reason, and none fails', async () => {
  const scene = await newScene({ environment: { CONNECTION_CONCURRENCY: '4' } });
  try {
    const directory = scene.ground.environment.STORAGE_URL!.slice('file://'.length);
    // A file at the path: not even root can write below it.
    await rename(directory, `${directory}.aside`);
    await writeFile(directory, '');
    const ids = await Promise.all(Array.from({ length: 10 }, () => scene.upload()));
    await scene.resync();
    await until('the breaker to open', () => breaker(scene.mirror.lines).length > 0);
    // A result of readiness checks is reused for some seconds.
    const ready = await until('/readyz to report it', async () => {
      const answer = await fetch(`${scene.ground.publicUrl}/readyz`);
      return answer.status === 503 && answer.json();
    });
    expect(JSON.stringify(ready)).toMatch(/a file has the path/);
    await rm(directory);
    await rename(`${directory}.aside`, directory);
    for (const id of ids) expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
    expect(breaker(scene.mirror.lines)).toHaveLength(1);
    const downloads = (await scene.admin.requests()).filter((request) => request.endpoint === 'media');
    // A few were in transfer; the rest was not requested.
    expect(downloads.length).toBeLessThanOrEqual(ids.length + 4);
    await chmod(directory, 0o755);
  } finally {
    await scene.close();
  }
});

test('a disk that is not mounted at the start is waited for; nothing is written in its place or fetched again', async () => {
  const scene = await newScene();
  try {
    const directory = scene.ground.environment.STORAGE_URL!.slice('file://'.length);
    const before = await scene.upload();
    await scene.resync();
    await scene.mirror.assetIn(before, 'mirrored');
    await rename(directory, `${directory}.aside`);
    await mkdir(directory);
    await scene.restart();
    await until('the breaker to open', () => breaker(scene.mirror.lines).length > 0);
    const after = await scene.upload();
    await scene.resync();
    await scene.mirror.assetIn(after, 'pending');
    const ready = await fetch(`${scene.ground.publicUrl}/readyz`);
    expect(JSON.stringify(await ready.json())).toMatch(/Check that the disk is mounted, and STORAGE_URL/);
    expect(await readdir(directory)).toEqual(['.asset-mirror-tmp']);
    await rm(directory, { recursive: true });
    await rename(`${directory}.aside`, directory);
    expect(await scene.mirror.assetIn(after, 'mirrored')).toMatchObject({ failedAttempts: [] });
    expect(await scene.admin.requests({ assetId: before, endpoint: 'media' as never })).toHaveLength(1);
  } finally {
    await scene.close();
  }
});

test.runIf(canMount)('a file that does not fit waits with the reason, while smaller ones are mirrored', async () => {
  const scene = await newScene();
  const directory = scene.ground.environment.STORAGE_URL!.slice('file://'.length);
  await cp(directory, `${directory}.before`, { recursive: true });
  await run('mount', ['-t', 'tmpfs', '-o', 'size=16m', 'tmpfs', directory]);
  try {
    await cp(`${directory}.before`, directory, { recursive: true });
    await scene.restart();
    const large = await scene.upload({ content: { seed: 'large', size: 30_000_000 } });
    const small = await Promise.all(Array.from({ length: 5 }, () => scene.upload()));
    await scene.resync();
    for (const id of small) await scene.mirror.assetIn(id, 'mirrored');
    const waiting = await until('the large one to wait', async () => {
      const asset = await scene.mirror.asset(large);
      return asset?.state === 'pending' && asset.reason && asset;
    });
    expect(waiting).toMatchObject({
      attempts: 0,
      reason: { text: expect.stringMatching(/not enough space for .*it needs 29 MiB/) },
    });
    expect(breaker(scene.mirror.lines)).toEqual([]);
    const [download] = await scene.admin.requests({ assetId: large, endpoint: 'media' as never });
    expect(Number(download!.bytes ?? 0)).toBeLessThan(10_000_000);
    await run('mount', ['-o', 'remount,size=64m', directory]);
    await scene.ground.endWaits();
    expect(await scene.mirror.assetIn(large, 'mirrored')).toMatchObject({ failedAttempts: [] });
  } finally {
    await scene.mirror.stop();
    await run('umount', [directory]);
    await scene.close();
  }
});

test.runIf(inject('s3'))('a missing bucket or wrong access keys make all assets wait', async () => {
  const scene = await newScene({ s3: inject('s3') });
  try {
    const { STORAGE_URL, AWS_SECRET_ACCESS_KEY } = scene.ground.environment;
    await scene.restart({ STORAGE_URL: 's3://no-such-bucket/copy' });
    const id = await scene.upload();
    await scene.resync();
    await until('the breaker to open', () =>
      breaker(scene.mirror.lines).some((line) => JSON.stringify(line).includes('the bucket does not exist')),
    );
    expect(await scene.mirror.assetIn(id, 'pending')).toMatchObject({ attempts: 0 });

    process.env.AWS_SECRET_ACCESS_KEY = 'wrong';
    await scene.restart({ STORAGE_URL: STORAGE_URL! });
    await until('the breaker to open again', () =>
      breaker(scene.mirror.lines).some((line) => JSON.stringify(line).includes('check the secret key')),
    );
    expect(await scene.mirror.asset(id)).toMatchObject({ state: 'pending', attempts: 0 });

    process.env.AWS_SECRET_ACCESS_KEY = AWS_SECRET_ACCESS_KEY!;
    await scene.restart();
    await scene.mirror.assetIn(id, 'mirrored');
  } finally {
    await scene.close();
  }
});

test.runIf(inject('s3'))(
  'an asset fails if the store answers 500 to it alone, and waits if it does so to all',
  async () => {
    const line = await newHttpLine(inject('s3')!.endpoint);
    const through = async () => ({ S3_ENDPOINT: line.endpoint });
    const scene = await newScene({ s3: inject('s3'), through });
    const answers500 = (to: string) => {
      const on = ({ method, url }: { method: string; url: string }) => method === 'PUT' && url.includes(to);
      line.set({ on, times: Number.POSITIVE_INFINITY, answer: internalError });
    };
    try {
      const refused = await scene.upload();
      answers500(refused);
      const others = await Promise.all(Array.from({ length: 3 }, () => scene.upload()));
      await scene.resync();
      for (const id of others) await scene.mirror.assetIn(id, 'mirrored');
      const reason = { code: 'object_refused', error: expect.stringMatching(/the store answered 500/) };
      await until('the reason', async () => (await scene.mirror.asset(refused)).reason !== null);
      expect(await scene.mirror.asset(refused)).toMatchObject({ state: 'pending', attempts: 0, reason });
      expect(scene.mirror.lines.some(({ event }) => event === 'object.refused')).toBe(true);
      // It waited for the library before: that does not count.
      const outage = { code: 'library_unavailable', error: 'for hours' };
      await scene.query(`UPDATE assets SET waits = 30, reason = '${JSON.stringify(outage)}' WHERE id = '${refused}'`);
      await scene.ground.endWaits();
      await until('another refusal', async () => (await scene.mirror.asset(refused)).reason.code === reason.code);
      expect(await scene.mirror.asset(refused)).toMatchObject({ state: 'pending' });
      await scene.query('UPDATE assets SET waits = 20 WHERE reason IS NOT NULL');
      await scene.ground.endWaits();
      expect(await scene.mirror.assetIn(refused, 'failed')).toMatchObject({ reason });
      expect(breaker(scene.mirror.lines)).toEqual([]);

      answers500('');
      const waiting = await scene.upload();
      await scene.resync();
      await until('the breaker to open', () => breaker(scene.mirror.lines).length > 0);
      await scene.mirror.assetIn(waiting, 'pending');
      line.set();
      for (const id of [refused, waiting])
        expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
    } finally {
      await scene.close();
      await line.close();
    }
  },
);

test.each<[string, (directory: string) => Promise<unknown>, (directory: string) => Promise<unknown>]>([
  [
    'replaced by an empty one',
    async (directory) => {
      await rename(directory, `${directory}.aside`);
      await mkdir(directory);
    },
    async (directory) => {
      await rm(directory, { recursive: true });
      await rename(`${directory}.aside`, directory);
    },
  ],
  [
    'left without its id',
    (directory) => rename(`${directory}/_mirror/id`, `${directory}.id`),
    (directory) => rename(`${directory}.id`, `${directory}/_mirror/id`),
  ],
  [
    'given the id of another mirror',
    async (directory) => {
      await cp(`${directory}/_mirror/id`, `${directory}.id`);
      await writeFile(`${directory}/_mirror/id`, 'another\n');
    },
    (directory) => rename(`${directory}.id`, `${directory}/_mirror/id`),
  ],
])(
  'nothing is written to a directory that is %s while the service runs, and no asset counts as mirrored',
  async (_, away, back) => {
    const scene = await newScene();
    try {
      const directory = scene.ground.environment.STORAGE_URL!.slice('file://'.length);
      const before = await scene.upload();
      await scene.resync();
      await scene.mirror.assetIn(before, 'mirrored');
      await scene.checked();
      await away(directory);
      const ids = await Promise.all(Array.from({ length: 12 }, () => scene.upload()));
      await scene.resync({ mode: 'incremental' });
      await until('the breaker to open', () => breaker(scene.mirror.lines).length > 0);
      const [closed] = breaker(scene.mirror.lines);
      expect(JSON.stringify(closed)).toMatch(/not the bucket of this database.*put an object _mirror\/id there/);
      for (const id of ids) expect((await scene.mirror.asset(id))?.state).not.toBe('mirrored');
      const files = await readdir(directory, { recursive: true });
      expect(files.filter((name) => ids.some((id) => name.includes(id)))).toEqual([]);
      await back(directory);
      for (const id of ids) expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
      for (const id of ids) expect((await scene.media(id))?.toString()).toBe('hello');
    } finally {
      await scene.close();
    }
  },
);

test.runIf(inject('s3'))(
  'assets written to an S3 bucket after its replacement are checked again when the right one is back',
  async () => {
    const scene = await newScene({ s3: inject('s3') });
    try {
      const id = (await contentOf(scene.storage, '_mirror/id'))!;
      // For ten seconds from now, the mirror does not read the id again.
      await scene.mirror.service.context.storage.check();
      await scene.storage.remove('_mirror/id');
      const ids: string[] = [];
      await until('the breaker to open', async () => {
        ids.push(await scene.upload());
        await scene.resync({ mode: 'incremental' });
        return breaker(scene.mirror.lines).length > 0;
      });
      await until('no transfer to run', async () => {
        return (await scene.mirror.api('GET', '/status')).assets.byState.transferring === 0;
      });
      // They are in the other bucket. The original one has none of them.
      const written = (await keysOf(scene.storage)).filter((key) => !key.startsWith('_mirror/'));
      expect(written.length).toBeGreaterThan(0);
      for (const key of written) await scene.storage.remove(key);
      await scene.storage.put('_mirror/id', id);
      for (const id of ids)
        await until('the file to be there', async () => (await scene.media(id))?.toString() === 'hello');
    } finally {
      await scene.close();
    }
  },
);
