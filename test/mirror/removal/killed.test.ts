import { expect, test } from 'vitest';
import { startTestLibrary } from '../../support/library.ts';
import { contentOf, keysOf, newGround, richest, spawnMirror } from '../../support/mirror.ts';
import { freePort } from '../../support/ports.ts';
import { until } from '../../support/until.ts';

const assets = 60;

test('a process that is killed again and again while it erases leaves nothing, and every erasure ends', {
  timeout: 240_000,
}, async () => {
  const ground = await newGround({ port: await freePort(), redis: richest().redis, s3: richest().s3 });
  const { library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] });
  await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
  for (let made = 0; made < assets; made++) {
    const kind = { mimeType: 'application/octet-stream', assetType: 'documents', uploadDate: Date.UTC(2024, 1, 29) };
    await admin.addAsset({
      companyId: 'acme',
      name: `file ${made}`,
      content: { text: `content ${made}` },
      thumbnail: false,
      ...kind,
    });
  }
  let mirror = await spawnMirror(ground, library);
  await mirror.connect();
  await mirror.quiet();
  expect(await keysOf(ground.storage)).toHaveLength(2 * assets);

  const { id } = await mirror.api('POST', '/erasures', { companyId: 'acme', reason: 'requested' });
  const erased = async () => (await mirror.api('GET', `/erasures/${id}`)).assets.erased;
  for (let kills = 1; kills <= 3; kills++) {
    await until('some assets to be erased', async () => (await erased()) > (assets / 5) * (kills - 1));
    await mirror.kill('SIGKILL');
    mirror = await spawnMirror(ground, library);
  }
  // The leases of the killed processes must run out.
  await until(
    'the erasure to end',
    async () => (await mirror.api('GET', `/erasures/${id}`)).status === 'done',
    180_000,
  );
  const certificate = await mirror.api('GET', `/erasures/${id}/certificate`);
  expect(certificate).toMatchObject({ assets: { erased: assets, held: 0 }, objects: 2 * assets, left: 0 });
  expect(await keysOf(ground.storage)).toEqual([]);
  const [{ sha256 }] = certificate.erased;
  expect((await contentOf(ground.storage, `_mirror/tombstones/${sha256}.json`))?.toString()).toContain('requested');
  expect((await mirror.api('GET', '/assets')).assets).toEqual([]);
  await mirror.kill('SIGTERM');
  await library.close();
  await ground.clear();
});
