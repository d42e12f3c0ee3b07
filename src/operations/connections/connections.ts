import { z } from 'zod';
import type { HeldKind } from '../../floor/held-changes.ts';
import { ceilingOf } from '../../pacing/adaptive-concurrency.ts';
import { limitOf } from '../../pacing/concurrency-limit.ts';
import { byState, expectedOf, skipped } from '../../store/counts/states.ts';
import type { Connection } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, isoOf, reasonAnswer, shownReason, stateCounts, text, time } from '../fields.ts';
import { givenCursor, nextCursor, pageOf, positionOf, rowsOfPage } from '../pagination.ts';
import { Refused } from '../refused.ts';
import { condition, conditionOf } from './condition.ts';
import { changedSettings, connectionSettings, settingsOf } from './connection-settings.ts';
import { tagFilter, tagsAnswer, tagsIn } from './tags.ts';

/** Assets per statement. */
const retriedAtOnce = 5000;

export const heldChanges = z
  .object({
    kind: z
      .enum(['missing', 'replaced', 'removed'])
      .describe(
        'missing: accept with `acceptGone` of a resync; replaced: with `acceptReplaced`; removed: with `acceptRemoved`.',
      ),
    count: count.describe('How many assets would change.'),
    known: count.describe('The number of assets of the company that `count` is compared with.'),
    sample: z.array(z.string()).describe('Ids of some of the assets that would change.'),
    since: time,
  })
  .meta({ id: 'HeldChanges' });

const connectionStatuses = ['active', 'paused', 'disconnected'] as const;

export const connectionQuery = z.strictObject({
  status: z.enum(connectionStatuses).optional(),
  q: text
    .max(200)
    .optional()
    .describe("Part of the user's name or e-mail, or of a company name; or the beginning of an id."),
  tag: tagFilter,
  cursor: givenCursor,
  limit: rowsOfPage(100),
});

export const connectionAnswer = z
  .object({
    id: z.string(),
    status: z.enum(connectionStatuses),
    condition,
    user: z.object({ id: z.string(), name: z.string(), email: z.string() }),
    tags: tagsAnswer,
    companies: z
      .array(
        z.object({
          id: z.string(),
          name: z.string(),
          highWaterMark: time.nullable().describe('The upload date up to which the company is completely listed.'),
          held: z.array(heldChanges).describe('Changes that wait until an operator accepts them.'),
        }),
      )
      .describe('The companies that it can read now.'),
    connectedAt: time,
    lastSyncAt: time.nullable(),
    nextSyncAt: time.nullable().describe('null: the connection is not active.'),
    polling: z
      .object({ interval: count, reason: z.enum(['set', 'active', 'idle']) })
      .describe(
        'Milliseconds between its incremental syncs now, and the reason: its own setting, recent uploads, or neither.',
      ),
    counts: z.object({
      byState: stateCounts,
      expected: count.describe('Assets that have a file in the library: without unavailable and gone ones.'),
      skipped: count.describe('Skipped by filters; not included in byState.'),
    }),
    bytes: count.describe('Size of its media in the bucket.'),
    adaptiveLimit: z
      .object({ limit: count, ceiling: count, delayedUntil: time.nullable() })
      .describe('How many assets it may transfer at once now, the configured maximum, and until when it waits.'),
    settings: connectionSettings,
    lastError: z.string().nullable(),
    reason: reasonAnswer
      .nullable()
      .describe(
        'Why it waits, last waited or is disconnected, or what its last sync could not do; lastError is its text.',
      ),
  })
  .meta({ id: 'Connection' });

export const connectionList = z
  .object({ connections: z.array(connectionAnswer), nextCursor })
  .meta({ id: 'ConnectionList' });

export const changedConnection = connectionAnswer
  .extend({ changed: changedSettings })
  .meta({ id: 'ChangedConnection' });

export const disconnectAnswer = connectionAnswer
  .extend({
    revoked: z
      .boolean()
      .nullable()
      .describe(
        'Whether the library revoked the grant. false: the user can remove it in the profile page there; null: it was disconnected before.',
      ),
  })
  .meta({ id: 'DisconnectedConnection' });

export const retriedAnswer = z.object({ retried: count }).meta({ id: 'Retried' });

/** @throws Refused 404 */
export async function existingConnection(store: Store, id: string): Promise<Connection> {
  const connection = await store.connections.get(id);
  if (!connection) {
    throw new Refused(
      404,
      'connection_not_found',
      `There is no connection ${id}. List them with \`asset-mirror connections\`.`,
    );
  }
  return connection;
}

/** @throws Refused 404, or 409 if it is paused or disconnected */
export async function activeConnection(store: Store, id: string): Promise<Connection> {
  const connection = await existingConnection(store, id);
  if (connection.status !== 'active') throw notActive(connection);
  return connection;
}

/** The refusal of work for a connection that is not active. */
export function notActive(connection: Connection): Refused {
  return connection.status === 'paused'
    ? new Refused(
        409,
        'connection_paused',
        'The connection is paused. Resume it first, with `asset-mirror resume` or in the dashboard.',
      )
    : new Refused(
        409,
        'connection_disconnected',
        `The connection is disconnected. Its user must connect again; create the link with \`asset-mirror connect-link --connection ${connection.id}\`.`,
      );
}

type Deps = Pick<OperationsDeps, 'store' | 'queues' | 'tokens' | 'transfer' | 'sync' | 'filters'>;

async function describe(deps: Deps, connections: Connection[]) {
  const { store } = deps;
  const ids = connections.map((connection) => connection.id);
  const [now, schedules, companies, counts] = await Promise.all([
    store.now(),
    store.connections.schedules(ids, deps.sync),
    store.connections.companies(ids),
    store.counts.byConnection(ids),
  ]);
  const companiesOf = Map.groupBy(companies, (company) => company.connectionId);
  const countsOf = Map.groupBy(counts, (row) => row.connectionId);
  return connections.map((connection) => {
    const own = countsOf.get(connection.id) ?? [];
    const states = byState(own);
    const adaptiveLimit = limitsOf(connection, deps.transfer.perConnection, now);
    const settings = settingsOf(connection, deps);
    const { interval, reason: intervalReason, next } = schedules.find(({ id }) => id === connection.id)!;
    const readable = companiesOf.get(connection.id) ?? [];
    const reason = shownReason(
      (adaptiveLimit.delayedUntil === null ? null : connection.delayedReason) ?? connection.lastError,
    );
    return {
      id: connection.id,
      status: connection.status,
      condition: conditionOf(connection, {
        byState: states,
        isHeld: readable.some(({ held }) => Object.keys(held).length > 0),
        skipped: skipped(own),
        syncInterval: settings.syncInterval,
        delayedUntil: adaptiveLimit.delayedUntil,
        now,
      }),
      user: { id: connection.userId, name: connection.userName, email: connection.userEmail },
      tags: connection.tags,
      companies: readable.map(({ id, name, highWaterMark, held }) => ({
        id,
        name,
        highWaterMark: isoOf(highWaterMark),
        held: (Object.keys(held) as HeldKind[]).sort().map((kind) => ({ kind, ...held[kind]! })),
      })),
      connectedAt: connection.connectedAt.toISOString(),
      lastSyncAt: connection.lastSyncAt?.toISOString() ?? null,
      nextSyncAt: connection.status === 'active' ? next.toISOString() : null,
      polling: { interval, reason: intervalReason },
      counts: { byState: states, expected: expectedOf(states), skipped: skipped(own) },
      bytes: own.reduce((sum, row) => sum + row.bytes, 0),
      adaptiveLimit,
      settings,
      lastError: reason?.text ?? null,
      reason,
    };
  });
}

export function connectionOperations(deps: Deps) {
  const { store, queues } = deps;
  const connection = async (id: string) => (await describe(deps, [await existingConnection(store, id)]))[0]!;

  return {
    /** A page of connections, in the order in which they connected. */
    async connections(query: z.input<typeof connectionQuery> = {}) {
      const { cursor, limit, tag, ...filter } = connectionQuery.parse(query);
      const after = positionOf(cursor, z.object({ connected: z.int(), id: text }));
      const found = await store.connections.search({ ...filter, tags: tagsIn(tag), after, limit: limit + 1 });
      const page = pageOf(found, limit, (last) => ({ connected: last.connectedMicros, id: last.id }));
      return { connections: await describe(deps, page.rows), nextCursor: page.nextCursor };
    },

    connection,

    /** Stops all work for it, in all processes, until it is resumed. */
    async pause(id: string) {
      const paused = await store.connections.pause(id);
      const current = await existingConnection(store, id);
      if (!paused && current.status === 'disconnected') throw notActive(current);
      return connection(id);
    },

    /** Resumes it, with a sync for new assets. */
    async resume(id: string) {
      const resumed = await store.connections.resume(id);
      const current = await existingConnection(store, id);
      if (!resumed && current.status === 'disconnected') throw notActive(current);
      if (resumed) await queues.offerSyncs([id]);
      return connection(id);
    },

    /** Ends it here at once, and revokes the grant if the library can be reached. The bucket keeps its files. */
    async disconnect(id: string) {
      await existingConnection(store, id);
      const { ended, revoked } = await deps.tokens.disconnect(id);
      return { ...(await connection(id)), revoked: ended ? revoked : null };
    },

    /** Retries all its failed assets, and counts their attempts from 0 again. */
    async retryFailed(id: string): Promise<{ retried: number }> {
      const current = await existingConnection(store, id);
      if (current.status === 'disconnected') throw notActive(current);
      let retried = 0;
      for (;;) {
        const some = await store.assets.retryFailed(id, retriedAtOnce);
        retried += some;
        if (some < retriedAtOnce) return { retried };
      }
    },
  };
}

/** The adaptive limit of a connection, and the end of its delay. */
function limitsOf({ adaptiveLimit, settings, delayedUntil }: Connection, perConnection: number, now: number) {
  const ceiling = ceilingOf(settings, perConnection);
  return {
    limit: limitOf(adaptiveLimit, ceiling),
    ceiling,
    delayedUntil: delayedUntil && delayedUntil.getTime() > now ? delayedUntil.toISOString() : null,
  };
}
