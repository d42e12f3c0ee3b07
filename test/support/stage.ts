import { randomUUID } from 'node:crypto';
import pg from 'pg';
import type { Reason } from '../../src/floor/reason-codes.ts';
import { renderReason } from '../../src/floor/reasons.ts';
import { defaultTimings } from '../../src/floor/timings.ts';
import { createAccess } from '../../src/pacing/with-token.ts';
import type { Sync, SyncMode, SyncScope } from '../../src/store/database/schema.ts';
import type { SyncDeps } from '../../src/sync/deps.ts';
import { runSyncs } from '../../src/sync/run-syncs.ts';
import { newBrowser } from './browser.ts';
import { type Admin, startTestLibrary, type Upload } from './library.ts';
import { newGround, type operatorOf, startMirror } from './mirror.ts';
import { freePort } from './ports.ts';
import { syncDepsOf } from './sync-deps.ts';
import { shortTimings } from './timings.ts';
import { until } from './until.ts';

export type Stage = Awaited<ReturnType<typeof newStage>>;

type Query = <T extends object>(text: string, values?: unknown[]) => Promise<T[]>;
/** A connect flow needs only the API of a mirror. */
type Connecting = Pick<ReturnType<typeof operatorOf>, 'api'>;

/** Long ago, so that no clock matters. */
export const longAgo = Date.UTC(2024, 1, 29);
export const overlap = 10 * 60_000;

/**
 * A library and a mirror without workers: nothing happens by itself. Tests run the syncs themselves, and each makes its
 * own companies and users, so they do not affect each other.
 */
export async function newStage(options: Partial<Parameters<typeof newGround>[0]> = {}) {
  // A sync that the test runs itself keeps its lease, even if the machine pauses for seconds.
  const patient = { ...shortTimings, syncLease: defaultTimings.syncLease };
  const ground = await newGround({ port: await freePort(), timings: patient, ...options });
  const { library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] });
  const mirror = await startMirror(ground, library, 'web');
  const { store, client, tokens, log, timings } = mirror.service.context;
  const deps = syncDepsOf({
    store,
    client,
    withToken: createAccess(tokens),
    log,
    timings,
    overlap,
  });
  const database = new pg.Pool({ connectionString: ground.environment.DATABASE_URL!, max: 2 });
  database.on('error', () => {});
  const query: Query = async (text, values = []) => (await database.query(text, values)).rows;

  return {
    ground,
    library,
    admin,
    mirror,
    store,
    deps,

    ...inLibrary(admin, mirror),
    ...inPlaceOfWorkers(deps, admin),
    ...inRecords(store, query),

    /** Queries the database. */
    query,

    async close(): Promise<void> {
      await database.end();
      await mirror.stop();
      await library.close();
      await ground.clear();
    },
  };
}

/** What a test prepares in the library. */
function inLibrary(admin: Admin, mirror: Connecting) {
  return {
    /** A company, and a connected user who can read it. */
    async company(): Promise<{ companyId: string; connectionId: string; userId: string }> {
      const companyId = `company-${randomUUID().slice(0, 8)}`;
      await admin.addCompany({ id: companyId, name: `The company ${companyId}` });
      return { companyId, ...(await this.person(companyId)) };
    },

    /** A connected user who can read these companies. */
    async person(...companyIds: string[]): Promise<{ connectionId: string; userId: string }> {
      const userId = `user-${randomUUID().slice(0, 8)}`;
      await admin.addUser({ id: userId, name: userId, email: `${userId}@example.com` });
      for (const companyId of companyIds) await admin.setAccess(companyId, userId, true);
      return { userId, connectionId: await connectAs(mirror, userId) };
    },

    /** Uploads; `count` of them a second apart unless a date is given. Returns their ids, oldest first. */
    async upload(companyId: string, count = 1, asset: Partial<Upload> = {}): Promise<string[]> {
      const ids: string[] = [];
      for (let i = 0; i < count; i++) {
        const { id } = await admin.addAsset({
          companyId,
          name: `file ${i}`,
          mimeType: 'application/octet-stream',
          assetType: 'documents',
          uploadDate: longAgo + i * 1000,
          thumbnail: false,
          ...asset,
        });
        ids.push(id);
      }
      return ids;
    },

    /** The number of listing requests for the company. */
    listings: async (companyId: string) => (await admin.requests({ endpoint: 'assets', companyId })).length,
  };
}

/** A sync whose reasons are rendered. */
type SyncInWords = Omit<Sync, 'error' | 'held'> & { error: string | null; held: string | null };

const textOf = (reason: Reason | null) => reason && renderReason(reason);

/** The work that a test does in place of workers. */
function inPlaceOfWorkers(deps: SyncDeps, admin: Admin) {
  const { store } = deps;
  return {
    /** Runs the waiting syncs of a connection; returns the result. */
    run: (connectionId: string, more: Partial<SyncDeps> = {}, stop = new AbortController().signal) =>
      runSyncs({ ...deps, ...more }, connectionId, stop),

    /** Requests a sync and runs it. Its error, and what it has held, are returned as text. */
    async sync(
      connectionId: string,
      mode: SyncMode = 'incremental',
      scope: SyncScope = {},
      more: Partial<SyncDeps> = {},
    ): Promise<SyncInWords> {
      const id = await store.syncs.request(connectionId, mode, scope);
      await runSyncs({ ...deps, ...more }, connectionId, new AbortController().signal);
      const sync = (await store.syncs.get(id!))!;
      return { ...sync, error: textOf(sync.error), held: textOf(sync.held) };
    },

    /** Starts a sync whose library does not answer after `pages` pages, and stops it there. */
    async stopInTheMiddle(
      at: { connectionId: string; companyId: string },
      pages = 1,
      mode: SyncMode = 'incremental',
    ): Promise<Sync> {
      await admin.addFault({ endpoint: 'assets', companyId: at.companyId, skip: pages, latency: 60_000 });
      const id = (await store.syncs.request(at.connectionId, mode))!;
      const stop = new AbortController();
      const running = this.run(at.connectionId, {}, stop.signal);
      await until('the last page before the silence', async () => (await store.syncs.get(id))?.pages === pages);
      stop.abort(new Error('stop'));
      await running;
      await admin.clearFaults();
      return (await store.syncs.get(id))!;
    },

    /** Hands over the assets of connections that cannot work, as a worker does every few seconds. */
    handOver: () => store.connections.adopt(1000),
  };
}

/** What a test reads in the records. */
function inRecords(store: SyncDeps['store'], query: Query) {
  const ofCompany = async (companyId: string) =>
    (await store.assets.search({ companyId, limit: 100_000 })).sort((a, b) => a.id.localeCompare(b.id));

  return {
    assets: ofCompany,
    ids: async (companyId: string) => (await ofCompany(companyId)).map((asset) => asset.id),

    async highWaterMark(connectionId: string, companyId: string): Promise<number | null | undefined> {
      return (await store.connections.companies([connectionId])).find((company) => company.id === companyId)
        ?.highWaterMark;
    },

    async events(match: { kind: string; connectionId?: string; assetId?: string }) {
      const { kind, connectionId = null, assetId = null } = match;
      return query<{ data: Record<string, unknown> }>(
        `SELECT * FROM events WHERE kind = $1 AND ($2::text IS NULL OR connection_id = $2)
           AND ($3::text IS NULL OR asset_id = $3) ORDER BY id`,
        [kind, connectionId, assetId],
      );
    },

    rows: async (table: string) => Number((await query<{ count: string }>(`SELECT count(*) FROM ${table}`))[0]!.count),
  };
}

/** Runs the connect flow for a user of the library, with automatic consent. Returns the connection's id. */
export async function connectAs(
  mirror: Connecting,
  userId: string,
  link: { connectionId?: string; tags?: Record<string, string> } = {},
): Promise<string> {
  const { url } = await mirror.api('POST', '/connect-links', link);
  const browser = newBrowser();
  const consent = (await browser.get(url)).headers.get('location');
  const page = await browser.visit(`${consent}&login_hint=${encodeURIComponent(userId)}`);
  if (page.status !== 200) throw new Error(`connecting: ${page.status} ${page.text}`);
  const { connections } = await mirror.api('GET', '/connections?limit=250');
  return connections.find((connection: { user: { id: string } }) => connection.user.id === userId).id;
}
