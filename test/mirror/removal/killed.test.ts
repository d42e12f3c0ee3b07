// @module-tag slow
import { describe, expect, inject, test } from 'vitest';
import { startTestLibrary } from '../../support/library.ts';
import { contentOf, keysOf, newGround, richest, spawnMirror } from '../../support/mirror.ts';
import { freePort } from '../../support/ports.ts';
import { until } from '../../support/until.ts';

const assets = 60;
const s3 = inject('s3');

describe.each([{ name: 'a directory', s3: undefined }, ...(s3 ? [{ name: `a bucket of ${s3.name}`, s3 }] : [])])(
  'a process that is killed again and again while it removes from $name',
  { timeout: 240_000 },
  ({ s3 }) => {
    async function start(environment: Record<string, string> = {}) {
      const ground = await newGround({ port: await freePort(), redis: richest().redis, s3, environment });
      const { library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] });
      await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
      const upload = async (name: string) => {
        const kind = {
          mimeType: 'application/octet-stream',
          assetType: 'documents',
          uploadDate: Date.UTC(2024, 1, 29),
        };
        const content = { text: `content of ${name}` };
        return (await admin.addAsset({ companyId: 'acme', name, content, thumbnail: false, ...kind })).id;
      };
      const ids = await Promise.all(Array.from({ length: assets }, (_, made) => upload(`file ${made}`)));
      let mirror = await spawnMirror(ground, library);
      const connectionId = await mirror.connect();
      await mirror.quiet();
      expect(await keysOf(ground.storage)).toHaveLength(2 * assets);
      return {
        ...{ ground, admin, connectionId, ids },
        api: (...request: Parameters<typeof mirror.api>) => mirror.api(...request),
        /** Kills it whenever some more are removed. */
        async killWhile(removed: () => Promise<number>) {
          for (let kills = 1; kills <= 3; kills++) {
            await until('some to be removed', async () => (await removed()) > (assets / 5) * (kills - 1));
            await mirror.kill('SIGKILL');
            mirror = await spawnMirror(ground, library);
          }
        },
        async end() {
          await mirror.kill('SIGTERM');
          await library.close();
          await ground.clear();
        },
      };
    }

    test('an erasure whose process is killed again and again ends, leaves nothing, and certifies all assets', async () => {
      const { ground, api, killWhile, end } = await start();
      const { id } = await api('POST', '/erasures', { companyId: 'acme', reason: 'requested' });
      await killWhile(async () => (await api('GET', `/erasures/${id}`)).assets.erased);
      // The leases of the killed processes must run out.
      await until('the erasure to end', async () => (await api('GET', `/erasures/${id}`)).status === 'done');
      const certificate = await api('GET', `/erasures/${id}/certificate`);
      expect(certificate).toMatchObject({ assets: { erased: assets, held: 0 }, objects: 2 * assets, left: 0 });
      expect(await keysOf(ground.storage)).toEqual([]);
      const [{ sha256 }] = certificate.erased;
      expect((await contentOf(ground.storage, `_mirror/tombstones/${sha256}.json`))?.toString()).toContain('requested');
      expect((await api('GET', '/assets')).assets).toEqual([]);
      await end();
    });

    test('all assets that were gone for GONE_RETENTION are removed, and no others', async () => {
      const { ground, api, killWhile, admin, connectionId, ids, end } = await start({ GONE_RETENTION: '4s' });
      await api('PATCH', `/connections/${connectionId}`, { holdReplaced: '100%,0' });
      const [kept, ...gone] = ids;
      for (const id of gone) await admin.removeAsset(id);
      await api('POST', `/connections/${connectionId}/resync`, { mode: 'full', companyId: 'acme', acceptGone: true });
      const left = async () => (await keysOf(ground.storage)).filter((key) => !key.includes(`/${kept}/`));
      await killWhile(async () => assets - 1 - (await left()).length / 2);
      await until('all to be removed', async () => (await left()).length === 0);
      await until('their rows to be removed', async () => (await api('GET', '/assets')).assets.length === 1);
      expect((await keysOf(ground.storage)).toSorted()).toHaveLength(2);
      await end();
    });
  },
);
