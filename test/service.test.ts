// @module-tag slow
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Library, startTestLibrary } from './support/library.ts';
import { newGround, startMirror } from './support/mirror.ts';
import { freePort } from './support/ports.ts';

let library: Library;
beforeAll(async () => {
  ({ library } = await startTestLibrary());
});
afterAll(() => library?.close());

/** The messages of a start, with their fields. */
async function startWith(environment: Record<string, string>) {
  const ground = await newGround({ port: await freePort(), environment: { SHUTDOWN_GRACE: '60s', ...environment } });
  const mirror = await startMirror(ground, library);
  await mirror.stop();
  await ground.clear();
  return ground.logs.flatMap((lines) => lines().map((line) => JSON.parse(line)));
}

test('a start logs which dependencies do not answer, and why', async () => {
  const lines = await startWith({
    STORAGE_URL: 'file:///dev/null/mirror',
    REDIS_URL: `redis://127.0.0.1:${await freePort()}`,
  });
  const waiting = lines.filter(({ msg }) => msg.startsWith('started, waiting'));
  expect(waiting).toMatchObject([
    {
      level: 'warn',
      msg: 'started, waiting for the queue',
      reason: expect.stringMatching(
        /^nothing listens at 127\.0\.0\.1:\d+ \(ECONNREFUSED\); start .* correct REDIS_URL$/,
      ),
    },
    {
      level: 'warn',
      msg: 'started, waiting for the bucket',
      reason: expect.stringContaining('a file has the path of the directory'),
    },
  ]);
});

test('a start logs a variable with a name similar to a setting, and continues', async () => {
  const lines = await startWith({ SYNC_INTERVALL: '5m' });
  expect(lines.filter(({ level }) => level === 'warn')).toMatchObject([
    { msg: 'unknown variable that resembles a setting', variable: 'SYNC_INTERVALL', similar: 'SYNC_INTERVAL' },
  ]);
});
