import { z } from 'zod';
import { limitOf } from '../jobs/pace.ts';
import { ceilingOf } from '../jobs/pacer.ts';
import { signConnectLink } from '../oauth/authorize.ts';
import type { Connection } from '../store/schema.ts';
import type { Store } from '../store/store.ts';
import { settingsOf } from './connection-settings.ts';
import type { OperationsDeps } from './deps.ts';
import { Refused } from './refused.ts';
import { byState, leftOut } from './states.ts';
import { text } from './text.ts';

const linkLifetimeMs = 7 * 86_400_000;

export const connectLinkRequest = z.strictObject({ connectionId: text.optional() });

/** @throws Refused 404 */
export async function existingConnection(store: Store, id: string): Promise<Connection> {
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

export function connectionOperations(
  options: Pick<
    OperationsDeps,
    'store' | 'schedule' | 'sealer' | 'publicUrl' | 'perConnection' | 'syncInterval' | 'selection'
  >,
) {
  const { store, schedule } = options;

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
        counts: { byState: byState(own), leftOut: leftOut(own) },
        bytes: own.reduce((sum, row) => sum + row.bytes, 0),
        pace: paceOf(connection, options.perConnection),
        settings: settingsOf(connection, options),
        lastError: connection.lastError,
      };
    });
  }

  return {
    /** A signed link for a user to connect, or to reconnect one connection. */
    async createConnectLink(request: {
      connectionId?: string | undefined;
    }): Promise<{ url: string; expiresAt: string }> {
      if (request.connectionId !== undefined) await existingConnection(store, request.connectionId);
      const expiresAt = new Date(Date.now() + linkLifetimeMs);
      const link = signConnectLink(options.sealer, { connectionId: request.connectionId, expiresAt });
      return { url: `${options.publicUrl}/connect?link=${link}`, expiresAt: expiresAt.toISOString() };
    },

    async connections() {
      return { connections: await describe(await store.connections.list()) };
    },

    async connection(id: string) {
      return (await describe([await existingConnection(store, id)]))[0]!;
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
