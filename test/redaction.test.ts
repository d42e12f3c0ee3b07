// @module-tag slow
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bucketAsText, databaseAsText, filesAsText, redisAsText } from './support/everything.ts';
import { addFaultsOfSyncs, addFaultyAssets } from './support/indiscreet-library.ts';
import { type Admin, type Library, startTestLibrary } from './support/library.ts';
import { type Ground, grounds, newGround, spawnMirror } from './support/mirror.ts';
import { freePort } from './support/ports.ts';
import { attemptsInVain, canaries, connect, listen, readQueues, wrong } from './support/redaction.ts';
import { until } from './support/until.ts';
import { newWire } from './support/wire.ts';

type Kind = ReturnType<typeof grounds>[number];
type Mirror = Awaited<ReturnType<typeof spawnMirror>>;
type EventStream = Awaited<ReturnType<typeof listen>>;
type Wire = Awaited<ReturnType<typeof newWire>>;

/** What the steps of a run share. `written`: everything in which a secret could be found, by its place. */
interface Run {
  ground: Ground;
  admin: Admin;
  web: Mirror;
  written: Map<string, string>;
}

describe.each(grounds())('secrets in logs, records and files ($name)', { timeout: 240_000 }, (kind) => {
  const written = new Map<string, string>();
  const secrets = new Map<string, string>();
  let library: Library;
  let admin: Admin;
  let ground: Ground;
  let wire: Wire;
  const mirrors: Mirror[] = [];

  beforeAll(async () => {
    ground = await openGround(kind);
    ({ library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] }));
    wire = await newWire(library.apiUrl);
    const behindWire = { ...library, apiUrl: wire.url };
    const metricsPort = await freePort();
    const working = { ...ground, environment: { ...ground.environment, METRICS_PORT: String(metricsPort) } };
    const [web, worker] = await Promise.all([
      spawnMirror(ground, behindWire, 'web'),
      spawnMirror(working, behindWire, 'worker'),
    ]);
    mirrors.push(web, worker);
    const vain = attemptsInVain(library, ground, wire);
    const stream = await listen(ground);
    const [user] = library.users;
    await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [user!.id] });

    const run: Run = { ground, admin, web, written };
    await connectWithErrors(run, wire);
    await addFaultyAssets(admin);
    await addFaultsOfSyncs(admin);
    const connectionId = await syncWithErrors(web);
    const verifyId = await verifyAll(web);
    await readApi(run, connectionId, verifyId);
    await readQueues(ground, written, secrets);
    await readMetrics(run, metricsPort);
    await endConnection(run, connectionId, stream);
    await readEvents(run);

    for (const [name, text] of await vain) written.set(name, text);
    for (const mirror of mirrors) await mirror.kill('SIGTERM');
    written.set('log of web', web.output());
    written.set('log of worker', worker.output());
    await readStores(run, kind);
    for (const secret of wire.secrets) secrets.set(secret, 'seen on the way to the library');
    addKnownSecrets(secrets, ground, library, kind);
  }, 240_000);
  afterAll(async () => {
    for (const mirror of mirrors) await mirror.kill('SIGKILL');
    await wire?.close();
    await library?.close();
    await ground?.clear();
  });

  const mayBeEmpty = (where: string) => where.startsWith('table') || (where === 'files' && kind.s3 !== undefined);
  const lines = () =>
    [...written.entries()]
      .filter(([name]) => name.startsWith('log of'))
      .flatMap(([, text]) => text.split('\n'))
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line));

  test('no log, table, object or answer contains a secret', () => {
    // Enough of each kind, or the run has shown nothing.
    const of = (pattern: RegExp) => [...secrets.keys()].filter((secret) => pattern.test(secret)).length;
    expect(of(/^svca_/)).toBeGreaterThanOrEqual(3);
    expect(of(/^svcr_/)).toBeGreaterThanOrEqual(3);
    expect(of(/^svcc_/)).toBeGreaterThanOrEqual(1);
    // The number of signed links depends on the number of requests.
    expect(secrets.size).toBeGreaterThan(30);
    for (const [where, text] of written) expect(text.length, where).toBeGreaterThanOrEqual(mayBeEmpty(where) ? 0 : 20);

    const found: string[] = [];
    for (const [where, text] of written) {
      for (const [secret, what] of secrets) {
        const place = text.indexOf(secret);
        if (place >= 0)
          found.push(`${where} has ${what}: …${text.slice(Math.max(0, place - 150), place + secret.length + 20)}…`);
      }
    }
    expect(found).toEqual([]);
  });

  test('errors are reported in the logs without their secrets', () => {
    const all = [...written.values()].join('\n');
    for (const kept of ['svc*_…', 'https://media.example.com/a?…', 'ECONNREFUSED', 'connection disconnected']) {
      expect(all).toContain(kept);
    }
    expect(lines().filter(({ level }) => level === 'warn' || level === 'error').length).toBeGreaterThan(10);
  });

  test('each log line has an event of docs/reference/log-events.md', () => {
    const page = readFileSync('docs/reference/log-events.md', 'utf8');
    for (const { event, msg } of lines()) expect(page, msg).toContain(`\`${event}\``);
  });

  test('each log line of an asset names its sync, and each library request its asset', () => {
    const mirrored = lines().filter(({ msg }) => msg === 'asset mirrored');
    expect(mirrored.length).toBeGreaterThan(5);
    const runs = new Set(
      lines()
        .filter(({ event }) => event === 'sync.done' || event === 'sync.failed')
        .map(({ syncId }) => syncId),
    );
    for (const line of mirrored) {
      expect(runs).toContain(line.syncId);
      const asked = lines().filter(({ msg, assetId }) => msg === 'library answered' && assetId === line.assetId);
      expect(asked.map(({ endpoint }) => endpoint)).toEqual(expect.arrayContaining(['asset', 'link']));
      for (const request of asked) {
        expect(request).toMatchObject({
          syncId: line.syncId,
          connectionId: line.connectionId,
          libraryRequestId: expect.any(String),
        });
      }
      expect(new Set(asked.map(({ libraryRequestId }) => libraryRequestId)).size).toBe(asked.length);
    }
    const listings = lines().filter(({ msg, endpoint }) => msg === 'library answered' && endpoint === 'assets');
    expect(listings.length).toBeGreaterThan(0);
    for (const { syncId } of listings) expect(syncId).toEqual(expect.any(String));
  });
});

async function openGround(kind: Kind): Promise<Ground> {
  return newGround({
    port: await freePort(),
    redis: kind.redis,
    s3: kind.s3,
    environment: {
      LOG_LEVEL: 'trace',
      WEBHOOK_SECRET: `whsec_${randomBytes(24).toString('base64')}`,
      // No server listens there: each delivery fails, and is logged.
      WEBHOOK_URL: `http://127.0.0.1:1/hook?signature=${canaries.signature}`,
      WEBHOOK_ALLOW_PRIVATE: 'true',
    },
  });
}

/** The connect flow with all of a browser's data, and its errors. */
async function connectWithErrors({ ground, web, written }: Run, wire: Wire): Promise<void> {
  await connect(web.api, wire);
  await fetch(`${ground.publicUrl}/connect?link=${canaries.access}`);
  await fetch(`${ground.publicUrl}/oauth/callback?error=${canaries.access}&state=x`);
  const odd = { authorization: `Bearer ${canaries.access}`, 'x-request-id': canaries.refresh };
  const refused = await fetch(`${ground.publicUrl}/api/status`, { headers: odd });
  written.set('a refusal', JSON.stringify([...refused.headers, await refused.text()]));
  await web.quiet();
}

const resync = (web: Mirror, connectionId: string) =>
  web.api('POST', `/connections/${connectionId}/resync`, { mode: 'full' });

/** A sync that fails, and one that does not. Returns the connection's id. */
async function syncWithErrors(web: Mirror): Promise<string> {
  const [{ id: connectionId }] = (await web.api('GET', '/connections')).connections;
  await resync(web, connectionId);
  await until('a run to fail', async () => (await web.api('GET', `/connections/${connectionId}`)).lastError);
  await resync(web, connectionId);
  await until('everything to come to rest', async () => {
    const { assets, outstanding, syncs } = await web.api('GET', '/status');
    return assets.total >= 11 && outstanding.assets + outstanding.sidecars + syncs.waiting + syncs.running === 0;
  });
  return connectionId;
}

/** Returns the id of the verification. */
async function verifyAll(web: Mirror): Promise<string> {
  const { id: verifyId } = await web.api('POST', '/verify', { deep: true, all: true });
  await until('the bucket to be compared', async () => {
    return (await web.api('GET', `/verify/${verifyId}`)).status === 'done';
  });
  return verifyId;
}

async function readApi({ web, written }: Run, connectionId: string, verifyId: string): Promise<void> {
  const idsOf = async (list: string): Promise<string[]> =>
    (await web.api('GET', `/${list}?limit=250`))[list].map(({ id }: { id: string }) => id);
  const paths = [
    '/status',
    '/connections',
    `/connections/${connectionId}`,
    '/assets?limit=250',
    ...(await idsOf('assets')).map((id) => `/assets/${id}`),
    '/settings',
    '/syncs',
    ...(await idsOf('syncs')).map((id) => `/syncs/${id}`),
    `/verify/${verifyId}?limit=1000`,
    '/history',
    '/upcoming',
  ];
  for (const path of paths) {
    written.set(`GET /api${path}`, JSON.stringify(await web.api('GET', path)));
  }
}

async function readMetrics({ ground, written }: Run, metricsPort: number): Promise<void> {
  for (const [name, address] of [
    ['web', ground.publicUrl],
    ['worker', `http://127.0.0.1:${metricsPort}`],
  ] as const) {
    for (const path of ['metrics', 'readyz']) {
      written.set(`${name} /${path}`, await (await fetch(`${address}/${path}`)).text());
    }
  }
}

/** The library ends the connection; the stream of events reports it, and is closed. */
async function endConnection({ admin, web, written }: Run, id: string, stream: EventStream): Promise<void> {
  await admin.expireTokens();
  await admin.endConnections();
  await resync(web, id);
  await until('the connection to end', async () => {
    return (await web.api('GET', `/connections/${id}`)).status === 'disconnected';
  });
  await until('that event', () => stream.received().includes('connection.disconnected'));
  written.set('the stream of events', stream.received());
  stream.close();
}

async function readEvents({ ground, written }: Run): Promise<void> {
  const accept = { accept: 'application/json', authorization: `Bearer ${ground.environment.ADMIN_TOKEN}` };
  const events = await fetch(`${ground.publicUrl}/api/events?limit=250`, { headers: accept });
  written.set('GET /api/events', await events.text());
}

/** The content of the database, Redis, the bucket, and the directory of data. */
async function readStores({ ground: { environment }, written }: Run, kind: Kind): Promise<void> {
  for (const [table, text] of await databaseAsText(environment.DATABASE_URL!)) written.set(`table ${table}`, text);
  if (kind.redis) written.set('Redis', await redisAsText(environment.REDIS_URL!));
  if (kind.s3) written.set('bucket', await bucketAsText(environment));
  written.set('files', await filesAsText(environment.DATA_DIR!));
}

/** The secrets of the settings, of the library's client, and of the errors. */
function addKnownSecrets(secrets: Map<string, string>, { environment }: Ground, library: Library, kind: Kind): void {
  for (const [name, secret] of Object.entries(canaries)) secrets.set(secret, `canary ${name}`);
  for (const [name, secret] of Object.entries(wrong)) secrets.set(secret, `a wrong ${name}`);
  for (const name of [
    'ADMIN_TOKEN',
    'ENCRYPTION_KEYS',
    'WEBHOOK_SECRET',
    ...(kind.s3 ? ['AWS_SECRET_ACCESS_KEY'] : []),
  ]) {
    secrets.set(environment[name]!, name);
  }
  const key = Buffer.from(environment.ENCRYPTION_KEYS!, 'base64');
  for (const form of ['hex', 'base64url'] as const) secrets.set(key.toString(form), `the encryption key as ${form}`);
  secrets.set(library.clientSecret, 'LIBRARY_CLIENT_SECRET');
  secrets.set(new URL(environment.DATABASE_URL!).password, 'the password of the database');
}
