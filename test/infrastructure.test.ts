// @module-tag slow
import { readFileSync } from 'node:fs';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { request } from 'undici';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { probeQueue } from '../src/queue/probe-queue.ts';
import { createAgent } from '../src/source/http.ts';
import { openS3 } from '../src/storage/s3/s3.ts';
import { openStore } from '../src/store/store.ts';
import { answer, startBare } from './source/bare.ts';
import { silent } from './store/records.ts';
import { type Certificates, newCertificates } from './support/certificates.ts';
import { installed } from './support/installed.ts';
import { type Admin, type Library, type LibraryOptions, startTestLibrary } from './support/library.ts';
import { type Ground, newGround, spawnMirror } from './support/mirror.ts';
import { newPooledPostgres } from './support/pgbouncer.ts';
import { freePort } from './support/ports.ts';
import { newProxy, newTlsFront } from './support/proxy.ts';
import { newCluster, newSentinels } from './support/redis-many.ts';
import { newTokenService } from './support/token-service.ts';
import { until } from './support/until.ts';

/** The infrastructure of a company: TLS of a private authority, passwords, poolers, proxies, failovers. */

let certificates: Certificates;
const known = getCACertificates('default');
beforeAll(async () => {
  certificates = await newCertificates();
  // Mirrors are processes of their own, which trust NODE_EXTRA_CA_CERTS. This process plays the browser and asks their dependencies.
  setDefaultCACertificates([...known, readFileSync(certificates.ca, 'utf8')]);
});
afterAll(async () => {
  setDefaultCACertificates(known);
  await certificates?.clear();
});

/** A mirror as a process of its own, connected, with what it needs to mirror a file. */
async function newSite(
  environment: Record<string, string>,
  options: Partial<Parameters<typeof newGround>[0]> = {},
  of: LibraryOptions = {},
) {
  const port = await freePort();
  const ground: Ground = await newGround({ port, ...options });
  Object.assign(ground.environment, environment, { NODE_EXTRA_CA_CERTS: certificates.ca });
  const redirectUris = [`${ground.publicUrl}/oauth/callback`];
  const { library, admin }: { library: Library; admin: Admin } = await startTestLibrary({ redirectUris, ...of });
  await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
  const mirror = await spawnMirror(ground, library);
  const connectionId = await mirror.connect();
  let files = 0;
  const resync = () => mirror.api('POST', `/connections/${connectionId}/resync`, { mode: 'full' });
  return {
    ground,
    library,
    admin,
    mirror,
    resync,
    /** Uploads a file, and waits until it is mirrored, without an attempt having failed. */
    async mirrors(size = 1000): Promise<void> {
      const seed = `file ${files++}`;
      const { id } = await admin.addAsset({
        companyId: 'acme',
        name: 'file.bin',
        mimeType: 'application/octet-stream',
        assetType: 'documents',
        uploadDate: Date.UTC(2024, 0, files),
        content: { seed, size },
      });
      await resync();
      expect(await mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [], bytes: size });
    },
    async close(): Promise<void> {
      await mirror.kill('SIGKILL');
      await library.close();
      await ground.clear();
    },
  };
}

/** The findings of doctor about Redis, without its version. */
async function examined(redisUrl: string): Promise<string[]> {
  const found: string[] = [];
  for await (const { what, level, found: text } of probeQueue({ redisUrl })) found.push(`${level} ${what} ${text}`);
  return found.map((line) => line.replace(/\d+\.\d+\.\d+|\d+ ms/g, '…'));
}

const redis = await installed('redis-server');
if (!redis) process.stdout.write('\n  No redis-server here, so the tests of Sentinel and Cluster are skipped\n');

test.runIf(redis)(
  'Redis behind sentinels, with TLS and passwords, loses no work when its primary dies',
  {
    timeout: 300_000,
  },
  async () => {
    const sentinels = await newSentinels(certificates);
    const site = await newSite({ REDIS_URL: sentinels.url });
    try {
      await site.mirrors();
      sentinels.killPrimary();
      await site.mirrors();
      expect(await sentinels.keysOfSecond()).toBeGreaterThan(0);
      expect(await site.mirror.kill('SIGTERM'), site.mirror.output()).toBe(0);
    } finally {
      await site.close();
      await sentinels.stop();
    }
  },
);

test.runIf(redis)(
  'a Redis Cluster with TLS and passwords has all queues in one slot',
  { timeout: 300_000 },
  async () => {
    const cluster = await newCluster(certificates);
    const site = await newSite({ REDIS_URL: cluster.url });
    try {
      await site.mirrors();
      const well = ['ok Redis …, 3 primaries, answers in …', 'ok eviction noeviction: jobs stay'];
      expect(await examined(cluster.url)).toEqual(well);
      expect((await cluster.keys()).filter((keys) => keys > 0)).toHaveLength(1);
      expect(await site.mirror.kill('SIGTERM'), site.mirror.output()).toBe(0);
    } finally {
      await site.close();
      await cluster.stop();
    }
  },
);

const pgbouncer = await installed('pgbouncer');
if (!pgbouncer) process.stdout.write('\n  No pgbouncer here, so the test of a database behind a pooler is skipped\n');

test.runIf(pgbouncer)(
  'the mirror works with PostgreSQL behind a pooler of transactions, with TLS',
  {
    timeout: 300_000,
  },
  async () => {
    const pooled = await newPooledPostgres(certificates);
    // Many that start at once, on an empty database and on one that is up to date: each waits for its lock, and none for ever.
    for (let round = 0; round < 2; round++) {
      const stores = await Promise.all(Array.from({ length: 5 }, () => openStore({ url: pooled.url, log: silent })));
      for (const store of stores) await store.close();
    }
    const site = await newSite({ DATABASE_URL: pooled.url }, { redis: inject('redis') });
    try {
      await site.mirrors();
      // A drill must not leave the schema that its statements see to other sessions.
      const { id } = await site.mirror.api('POST', '/drills', {});
      const ended = () => site.mirror.api('GET', `/drills/${id}`).then((drill) => drill.finishedAt && drill);
      expect(await until('the drill to end', ended)).toMatchObject({ status: 'passed', failures: [] });
      await site.mirrors();
      expect(await pooled.connections()).toEqual({ count: expect.any(Number), encrypted: true });
      expect(await site.mirror.kill('SIGTERM'), site.mirror.output()).toBe(0);
    } finally {
      await site.close();
      await pooled.stop();
    }
  },
);

const versitygw = inject('s3modern') !== undefined;

test.runIf(versitygw)(
  'the mirror reaches library and S3 through a proxy, with a private authority and workload credentials',
  {
    timeout: 300_000,
  },
  async () => {
    await using open = new AsyncDisposableStack();
    const proxy = await newProxy();
    open.defer(() => proxy.close());
    const port = await freePort();
    const front = await newTlsFront(certificates, `http://127.0.0.1:${port}`);
    open.defer(() => front.close());
    const s3 = inject('s3modern')!;
    const store = await newTlsFront(certificates, s3.endpoint);
    open.defer(() => store.close());
    const tokens = await newTokenService(s3);
    open.defer(() => tokens.close());

    const site = await newSite(
      {
        HTTPS_PROXY: proxy.url,
        NO_PROXY: '127.0.0.1',
        S3_ENDPOINT: `https://localhost:${store.port}`,
        AWS_ACCESS_KEY_ID: '',
        AWS_SECRET_ACCESS_KEY: '',
        ...tokens.environment,
      },
      { s3 },
      { publicUrl: `https://localhost:${front.port}`, port },
    );
    open.defer(() => site.close());
    await site.mirrors(40 * 2 ** 20);
    expect(tokens.asked()).toBeGreaterThan(0);
    expect(new Set(proxy.asked)).toEqual(
      new Set([`CONNECT localhost:${front.port}`, `CONNECT localhost:${store.port}`]),
    );
    expect(await site.mirror.kill('SIGTERM'), site.mirror.output()).toBe(0);
  },
);

test('a library with https mirrors https links, and an http link or redirect is refused without a request', async () => {
  await using open = new AsyncDisposableStack();
  const port = await freePort();
  const front = await newTlsFront(certificates, `http://127.0.0.1:${port}`);
  open.defer(() => front.close());
  const plain = await startBare();
  open.defer(() => plain.close());
  plain.answer(answer(200, 'sent without TLS', { 'content-type': 'video/mp4' }));
  const site = await newSite(
    { DOWNLOAD_ALLOW_PRIVATE: 'true' },
    {},
    { publicUrl: `https://localhost:${front.port}`, port },
  );
  open.defer(() => site.close());
  await site.mirrors();

  const film = { companyId: 'acme', name: 'film.mp4', mimeType: 'video/mp4', assetType: 'videos', uploadDate: 1 };
  const linked = await site.admin.addAsset({
    ...film,
    overrideDetail: { asset: { download: { url: `${plain.url}/film.mp4` } } },
  });
  const redirected = await site.admin.addAsset(film);
  const location = `${plain.url}/elsewhere.mp4`;
  await site.admin.addFault({ endpoint: 'media', assetId: redirected.id, status: 302, headers: { location } });
  await site.resync();
  for (const { id } of [linked, redirected]) {
    const { reason } = await site.mirror.assetIn(id, 'failed');
    expect(reason.text).toMatch(/leads to 127\.0\.0\.1 by http, while LIBRARY_API_URL is https/);
    expect(await site.mirror.asset(id)).toMatchObject({ bytes: null });
  }
  expect(plain.requests).toEqual([]);
});

test('a proxy is used for http addresses too, and not for those in NO_PROXY', async () => {
  await using open = new AsyncDisposableStack();
  const proxy = await newProxy();
  open.defer(() => proxy.close());
  const { library } = await startTestLibrary();
  open.defer(() => library.close());
  const proxies = { http: proxy.url, https: proxy.url, no: '' };
  const ask = async (no: string) => {
    const dispatcher = createAgent({ connections: 1, proxies: { ...proxies, no } });
    const { statusCode, body } = await request(`${library.apiUrl}/api/v1/me`, { dispatcher });
    await body.dump();
    await dispatcher.destroy();
    return statusCode;
  };
  expect([await ask(''), proxy.asked.splice(0)]).toEqual([401, [`GET ${library.apiUrl}/api/v1/me`]]);
  expect([await ask('example.com,127.0.0.1'), proxy.asked]).toEqual([401, []]);

  const s3 = inject('s3modern') ?? inject('s3');
  if (!s3) return;
  process.env.AWS_ACCESS_KEY_ID = s3.accessKey;
  process.env.AWS_SECRET_ACCESS_KEY = s3.secretKey;
  const { endpoint, region } = s3;
  const options = {
    bucket: 'nothing-here',
    prefix: '',
    endpoint,
    region,
    forcePathStyle: true,
    connections: 1,
  } as const;
  // A host in a domain of NO_PROXY is not requested from the proxy, although it cannot be resolved.
  const inside = await openS3({
    ...options,
    endpoint: 'http://bucket.s3.internal',
    checksums: 'none',
    proxies: { ...proxies, no: 'elsewhere s3.internal' },
  });
  await expect(inside.get('x')).rejects.toThrow();
  await inside.close();
  expect(proxy.asked).toEqual([]);
  for (const [no, asked] of [
    ['', 1],
    ['127.0.0.1,localhost', 0],
  ] as const) {
    const store = await openS3({ ...options, checksums: 'none', proxies: { ...proxies, no } });
    await expect(store.get('x')).rejects.toThrow('nothing-here');
    await store.close();
    expect(proxy.asked.splice(0).filter((line) => line.startsWith(`GET ${endpoint}/nothing-here`)).length).toBe(asked);
  }
});
