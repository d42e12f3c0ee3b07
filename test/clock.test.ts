import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { type Admin, type Library, startTestLibrary } from './support/library.ts';
import { type Ground, newGround, newRedis, spawnMirror } from './support/mirror.ts';
import { freePort } from './support/ports.ts';
import { until } from './support/until.ts';

const faketime = inject('faketime');
const redis = inject('redis');
const backends = [
  { name: 'queues in PostgreSQL', redis: undefined },
  ...(redis ? [{ name: 'queues in Redis', redis }] : []),
];

/** The clock of the mirror and of the PostgreSQL that it starts is wrong; the library's and Redis' are right. */
describe.skipIf(!faketime)('a clock that was ahead', { timeout: 300_000 }, () => {
  describe.each(backends)('$name', ({ redis }) => {
    const clockFile = join(tmpdir(), `asset-mirror-clock-${process.pid}-${Math.random()}`);
    let ground: Ground;
    let library: Library;
    let admin: Admin;
    let mirror: Awaited<ReturnType<typeof spawnMirror>> | undefined;

    const setClock = (offset: string) => writeFile(clockFile, `${offset}\n`);
    const upload = async (name: string) =>
      (
        await admin.addAsset({
          companyId: 'acme',
          name,
          mimeType: 'application/octet-stream',
          assetType: 'documents',
          thumbnail: false,
          content: { text: 'hello' },
        })
      ).id;

    beforeEach(async () => {
      ground = await newGround({
        port: await freePort(),
        environment: {
          LD_PRELOAD: faketime!,
          FAKETIME_TIMESTAMP_FILE: clockFile,
          FAKETIME_NO_CACHE: '1',
          FAKETIME_DONT_FAKE_MONOTONIC: '1',
          SYNC_INTERVAL: '5s',
          ...(redis && { REDIS_URL: await newRedis(redis) }),
        },
      });
      // The mirror's own: a server of the machine has the machine's clock.
      delete ground.environment.DATABASE_URL;
      ({ library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] }));
      await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
    });
    afterEach(async () => {
      await mirror?.kill('SIGTERM');
      mirror = undefined;
      await library.close();
      await ground.clear();
      await rm(clockFile, { force: true });
    });

    test('and is set back by two hours while the mirror runs: the step is logged, and syncs go on', async () => {
      await setClock('+2h');
      mirror = await spawnMirror(ground, library);
      await mirror.connect();
      await mirror.assetIn(await upload('before'), 'mirrored');
      await setClock('+0');
      await mirror.assetIn(await upload('after'), 'mirrored');
      await mirror.assetIn(await upload('later'), 'mirrored');
      expect(mirror.output()).toContain('the clock was set back');
    });

    test('and is set back by two days while the mirror is stopped: syncs go on, and assets in backoff come back', async () => {
      await setClock('+2d');
      mirror = await spawnMirror(ground, library);
      const connectionId = await mirror.connect();
      await admin.setFaults({ endpoint: 'media', status: 500 });
      const failing = await upload('failing');
      await until('an attempt that failed', async () => (await mirror!.asset(failing))?.attempts > 0);
      await mirror.kill('SIGKILL');
      await admin.clearFaults();
      await setClock('+0');
      mirror = await spawnMirror(ground, library);
      await mirror.api('POST', `/connections/${connectionId}/resync`, { mode: 'full' });
      await mirror.assetIn(failing, 'mirrored');
      await mirror.assetIn(await upload('after'), 'mirrored');
    });
  });
});
