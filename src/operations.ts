import { z } from 'zod';
import { reasonOf } from './errors.ts';
import { limitOf } from './jobs/pace.ts';
import { ceilingOf } from './jobs/pacer.ts';
import type { Queues } from './jobs/queues.ts';
import type { Schedule } from './jobs/schedule.ts';
import { differencesIn, nothingFound } from './jobs/verify.ts';
import { signConnectLink } from './oauth/authorize.ts';
import type { Sealer } from './oauth/seal.ts';
import type { Tokens } from './oauth/tokens.ts';
import type { Asset, AssetState, Connection } from './store/schema.ts';
import type { Store } from './store/store.ts';
import { parseRate } from './units.ts';

export type Operations = ReturnType<typeof createOperations>;

/** What an operator asked for does not exist, or cannot be done as things are. `code` is stable. */
export class Refused extends Error {
  override readonly name = 'Refused';
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** What a database can hold: no NUL, no half of a surrogate pair. */
const text = z
  .string()
  .min(1)
  .max(1000)
  .refine((value) => !value.includes('\0') && value.isWellFormed(), 'expected plain text');

/** Seconds of transfers, before anything is said about the rest. */
const soonestEstimate = 5;
const bucketLookMs = 10_000;
const linkLifetimeMs = 7 * 86_400_000;

export const assetStates = [
  'pending',
  'processing',
  'transferring',
  'mirrored',
  'unavailable',
  'failed',
  'gone',
] as const;

export const resyncRequest = z
  .strictObject({
    mode: z.enum(['incremental', 'full']),
    /** Epoch milliseconds. */
    since: z.int().min(0).optional(),
    companyId: text.optional(),
    projectId: text.optional(),
    assetType: text.optional(),
    assetIds: z.array(text).min(1).max(1000).optional(),
    /** What the listing lacks is gone, even when it is half of everything. */
    acceptGone: z.literal(true).optional(),
  })
  .refine(
    ({ mode, since, projectId, assetType, assetIds, acceptGone }) =>
      !acceptGone || (mode === 'full' && [since, projectId, assetType, assetIds].every((it) => it === undefined)),
    'acceptGone needs mode "full" and everything listed: no since, projectId, assetType or assetIds',
  )
  .meta({ id: 'ResyncRequest' });
export type ResyncRequest = z.infer<typeof resyncRequest>;

export const verifyRequest = z
  .strictObject({
    connectionId: text.optional(),
    /** Reads every object and compares its checksum. */
    deep: z.boolean().optional(),
    /** Has what is missing or differs fetched or written again. Nothing is ever removed. */
    repair: z.boolean().optional(),
    /** Keeps a line for what is as it should be, too. */
    all: z.boolean().optional(),
    /** Writes the day's inventory at the end. */
    inventory: z.boolean().optional(),
  })
  .meta({ id: 'VerifyRequest' });
export type VerifyRequest = z.infer<typeof verifyRequest>;

export const linesQuery = z.strictObject({
  /** The number of the last line that was read. */
  after: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(0).max(1000).default(100),
});
export type LinesQuery = z.input<typeof linesQuery>;

/** The id of a thing, in the address of a request about it. */
export const idParams = z.object({ id: text });

export const connectLinkRequest = z.strictObject({ connectionId: text.optional() });

/** Bytes per second and process, or as people write it (`20MiB/s`); null: as each process has it in BANDWIDTH_LIMIT. */
export const settingsRequest = z
  .strictObject({
    bandwidth: z
      .union([z.int().min(1), text.transform((value, ctx) => parseRate(value) ?? refuseRate(value, ctx))])
      .nullable(),
  })
  .meta({ id: 'SettingsRequest' });
export type SettingsRequest = z.input<typeof settingsRequest>;

/** Over everything that a connection has: then the bucket is looked at, too. */
export function isWhole({ mode, acceptGone: _, ...part }: ResyncRequest): boolean {
  return mode === 'full' && Object.values(part).every((it) => it === undefined);
}

function refuseRate(value: string, ctx: z.RefinementCtx): never {
  ctx.addIssue({ code: 'custom', message: `expected such as 20MiB/s, found ${value}` });
  return z.NEVER;
}

export const assetQuery = z.strictObject({
  connectionId: text.optional(),
  companyId: text.optional(),
  projectId: text.optional(),
  state: z.enum(assetStates).optional(),
  type: text.optional(),
  q: text.max(200).optional(),
  cursor: text.optional(),
  limit: z.coerce.number().int().min(1).max(500).default(50),
});
export type AssetQuery = z.input<typeof assetQuery>;

/** The operator's verbs, once. HTTP, CLI and demo are thin shells over them. */
export function createOperations(options: {
  store: Store;
  queues: Queues;
  schedule: Schedule;
  sealer: Sealer;
  /** Whether the bucket takes objects now. @throws why not */
  checkBucket: () => Promise<void>;
  /** Bytes per second that this process downloads now. */
  traffic: () => number;
  rotateKeys: Tokens['rotateKeys'];
  /** BANDWIDTH_LIMIT of this process. */
  ownBandwidth: number | undefined;
  publicUrl: string;
  /** The most of a connection at once. */
  perConnection: number;
}) {
  const { store, queues, schedule } = options;

  let looked: { at: number; reason: Promise<string | null> } | undefined;
  /** Why the bucket takes nothing; null: it does. Each look writes an object, so one does for a while. */
  function bucketTrouble(): Promise<string | null> {
    if (!looked || Date.now() - looked.at > bucketLookMs) {
      looked = { at: Date.now(), reason: options.checkBucket().then(() => null, reasonOf) };
    }
    return looked.reason;
  }

  async function existing(id: string): Promise<Connection> {
    const connection = await store.connections.get(id);
    if (!connection) {
      throw new Refused(
        404,
        'connection_not_found',
        `There is no connection ${id}. GET /api/connections and \`asset-mirror status\` list them.`,
      );
    }
    return connection;
  }

  async function describe(connections: Connection[]) {
    const [companies, counts] = await Promise.all([
      store.connections.companies(connections.map((c) => c.id)),
      store.assets.counts(connections.map((c) => c.id)),
    ]);
    return connections.map((connection) => {
      const own = counts.filter((row) => row.connectionId === connection.id);
      return {
        id: connection.id,
        status: connection.status,
        user: { id: connection.userId, name: connection.userName, email: connection.userEmail },
        companies: companies
          .filter((company) => company.connectionId === connection.id)
          .map(({ id, name, mark }) => ({ id, name, mark })),
        connectedAt: connection.connectedAt.toISOString(),
        lastSyncAt: connection.lastSyncAt?.toISOString() ?? null,
        nextSyncAt:
          connection.status === 'active' ? schedule.nextSync(connection.id, connection.settings).toISOString() : null,
        counts: { byState: byState(own) },
        bytes: own.reduce((sum, row) => sum + row.bytes, 0),
        pace: paceOf(connection, options.perConnection),
        lastError: connection.lastError,
      };
    });
  }

  return {
    /** A signed link for a user to connect, or to reconnect one connection. */
    async createConnectLink(request: {
      connectionId?: string | undefined;
    }): Promise<{ url: string; expiresAt: string }> {
      if (request.connectionId !== undefined) await existing(request.connectionId);
      const expiresAt = new Date(Date.now() + linkLifetimeMs);
      const link = signConnectLink(options.sealer, { connectionId: request.connectionId, expiresAt });
      return { url: `${options.publicUrl}/connect?link=${link}`, expiresAt: expiresAt.toISOString() };
    },

    async connections() {
      return { connections: await describe(await store.connections.list()) };
    },

    async connection(id: string) {
      return (await describe([await existing(id)]))[0]!;
    },

    /** Totals, rates of the last minute, queue depths, time left at that rate. */
    async status() {
      const [records, queued, trouble] = await Promise.all([
        // Of one moment, or what passes from one figure to the next between two reads is in neither, and passes for rest.
        store.snapshot(async (at) => ({
          connections: await at.connections.list(),
          counts: await at.assets.counts(),
          outstanding: await at.assets.outstanding(),
          recent: await at.assets.recent(60_000),
          syncs: await at.syncs.open(),
          verifications: await at.verifications.open(),
        })),
        within(5000, queues.counts()),
        within(5000, bucketTrouble()),
      ]);
      const { connections, counts, outstanding, recent, syncs, verifications } = records;
      const total = counts.reduce((sum, row) => sum + row.count, 0);
      const statuses = { active: 0, paused: 0, disconnected: 0 };
      for (const { status } of connections) statuses[status]++;
      // A large file counts while it flows, as far as it flows here, and in any case when it is done.
      const bytesPerSecond = Math.max(recent.bytes / recent.seconds, options.traffic());
      const assetsPerSecond = recent.count / recent.seconds;
      const known = recent.seconds >= soonestEstimate;
      const byBytes = known && bytesPerSecond > 0 ? outstanding.bytes / bytesPerSecond : null;
      const byCount = known && assetsPerSecond > 0 ? outstanding.count / assetsPerSecond : null;
      return {
        connections: statuses,
        assets: { total, byState: byState(counts) },
        bytes: counts.reduce((sum, row) => sum + row.bytes, 0),
        /** `later`: those of them that were put off after an error; `artefacts` may still come for what is mirrored. */
        outstanding: {
          assets: outstanding.count,
          bytes: outstanding.bytes,
          later: outstanding.later,
          artefacts: outstanding.artefacts,
        },
        rate: { assetsPerSecond, bytesPerSecond },
        /** Seconds; 0 when nothing is left, null when nothing moves or it is too early to say. */
        timeLeft:
          outstanding.count === 0 ? 0 : byBytes === null || byCount === null ? null : Math.max(byBytes, byCount),
        syncs,
        verifications,
        queues: queued ?? null,
        /** `reason`: why it takes nothing at present, so that everything waits. */
        bucket: { ok: trouble === null, reason: trouble === undefined ? 'it does not answer' : trouble },
      };
    },

    /** A page of assets, by id. */
    async assets(query: AssetQuery) {
      const { cursor, limit, ...filter } = assetQuery.parse(query);
      const after = cursor === undefined ? undefined : Buffer.from(cursor, 'base64url').toString();
      if (after !== undefined && (after.includes('\0') || Buffer.from(after).toString('base64url') !== cursor)) {
        throw new Refused(
          400,
          'invalid_cursor',
          'The cursor is not one of ours. Pass nextCursor as it was given, or none.',
        );
      }
      const rows = await store.assets.search({ ...filter, after, limit: limit + 1 });
      const last = rows.length > limit ? rows[limit - 1] : undefined;
      return {
        assets: rows.slice(0, limit).map(describeAsset),
        nextCursor: last ? Buffer.from(last.id).toString('base64url') : null,
      };
    },

    /** Asks for a run. The run is in the records when this returns, whatever becomes of the queue. */
    async resync(connectionId: string, request: ResyncRequest): Promise<{ syncId: string }> {
      const connection = await existing(connectionId);
      if (connection.status !== 'active') {
        throw new Refused(409, `connection_${connection.status}`, stoppedText(connection));
      }
      const { mode, ...scope } = resyncRequest.parse(request);
      const syncId = await store.syncs.request(connectionId, mode, scope, { bucket: isWhole({ mode, ...scope }) });
      if (syncId === undefined)
        throw new Refused(409, 'connection_disconnected', stoppedText(await existing(connectionId)));
      // When the queue is away, the dispatcher finds the run in the records.
      await within(2000, queues.addSync(connectionId)).catch(() => {});
      return { syncId };
    },

    /** Asks for a comparison of library, records and bucket. It is in the records when this returns; a worker takes it up. */
    async verify(request: VerifyRequest): Promise<{ id: string }> {
      const { connectionId, ...how } = verifyRequest.parse(request);
      if (connectionId !== undefined) await existing(connectionId);
      return { id: await store.verifications.request(how, connectionId) };
    },

    /** How far a verification is, what it has counted, and a page of what it has to tell. */
    async verification(id: string, query: LinesQuery = {}) {
      const { after, limit } = linesQuery.parse(query);
      const run = await store.verifications.get(id);
      if (!run) {
        throw new Refused(
          404,
          'verification_not_found',
          `There is no verification ${id}. The last 20 are kept; POST /api/verify asks for another.`,
        );
      }
      const rows = await store.verifications.lines(id, { after, limit });
      const { lines: told = 0, assets = 0, assetsTotal = 0, ...counts } = { ...nothingFound, ...run.counts };
      return {
        id: run.id,
        connectionId: run.connectionId,
        ...run.options,
        status: run.status,
        phase: run.status === 'running' ? (run.position.phase ?? 'library') : null,
        /** Assets whose media was compared, of how many. */
        progress: { done: assets, total: assetsTotal },
        counts,
        differences: differencesIn(counts),
        error: run.error,
        requestedAt: run.requestedAt.toISOString(),
        startedAt: run.startedAt?.toISOString() ?? null,
        finishedAt: run.finishedAt?.toISOString() ?? null,
        lines: rows.map(({ remedy: _, ...line }) => line),
        /** What to pass as `after` for those behind them; null: these are the last ones for now. */
        next: rows.length > 0 && rows.at(-1)!.number < told ? rows.at(-1)!.number : null,
      };
    },
    /** Seals all tokens with the first key of this process. */
    rotateKeys: () => options.rotateKeys(),
    async settings() {
      const set = await store.settings.bandwidth();
      return {
        /** Bytes per second that each process may download; null: no limit. `from`: where that is said. */
        bandwidth: set ?? options.ownBandwidth ?? null,
        from: set !== null ? ('settings' as const) : ('BANDWIDTH_LIMIT' as const),
      };
    },

    /** All processes take it over at once. */
    async changeSettings(request: SettingsRequest) {
      await store.settings.setBandwidth(settingsRequest.parse(request).bandwidth);
      return this.settings();
    },

    async sync(id: string) {
      return store.syncs.get(id);
    },
  };
}

/** How much of a connection is under way at once, and how long nobody asks anything for it; null: nothing keeps it. */
function paceOf({ pace, settings, parkedUntil }: Connection, perConnection: number) {
  const ceiling = ceilingOf(settings, perConnection);
  return {
    limit: limitOf(pace, ceiling),
    ceiling,
    parkedUntil: parkedUntil && parkedUntil.getTime() > Date.now() ? parkedUntil.toISOString() : null,
  };
}

function byState(rows: { state: AssetState; count: number }[]): Record<AssetState, number> {
  const counts = Object.fromEntries(assetStates.map((state) => [state, 0])) as Record<AssetState, number>;
  for (const { state, count } of rows) counts[state] += count;
  return counts;
}

function describeAsset(asset: Asset & { readable: boolean }) {
  const left = asset.nextAt !== null && !asset.readable ? 'no connection can read its company at present' : null;
  return {
    id: asset.id,
    name: asset.name,
    connectionId: asset.connectionId,
    companyId: asset.companyId,
    projectId: asset.projectId,
    type: asset.assetType,
    size: asset.size,
    uploadDate: asset.uploadDate,
    state: asset.state,
    reason: left ?? asset.reason,
    attempts: asset.attempts,
    nextAt: asset.nextAt?.toISOString() ?? null,
    key: asset.media?.key ?? null,
    bytes: asset.bytes,
    variant: asset.media?.variant ?? null,
    checksums: asset.media?.checksums ?? null,
    mirroredAt: asset.mirroredAt?.toISOString() ?? null,
    transcript: asset.transcriptState,
    thumbnail: asset.thumbnailState,
  };
}

function stoppedText(connection: Connection): string {
  return connection.status === 'paused'
    ? 'The connection is paused. Resume it first.'
    : 'The connection is disconnected. Its user has to connect again: POST /api/connect-links makes the link.';
}

/** What comes in time, or undefined. */
export async function within<T>(ms: number, work: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  work.catch(() => {});
  try {
    return await Promise.race([
      work,
      new Promise<undefined>((resolve) => {
        timer = setTimeout(() => resolve(undefined), ms);
      }),
    ]);
  } finally {
    clearTimeout(timer);
  }
}
