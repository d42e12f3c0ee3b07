import { requestFilters } from '../companies/request-filters.ts';
import type { Connection, Database } from '../database/schema.ts';
import { addEvent, notify } from '../events/add-event.ts';
import { request } from '../syncs/syncs.ts';

type Changeable = Pick<Connection, 'settings' | 'tags'>;

/** The new settings and tags of a connection. `applyFilters`: its filters are applied again. `fullSync`: a full sync is requested, too. */
type Change = Pick<Changeable, 'settings'> & Partial<Changeable> & { applyFilters: boolean; fullSync?: boolean };

/** Changes the settings and tags of a connection. Returns the id of the requested sync, if there is one. */
export async function changeSettings(
  db: Database,
  connectionId: string,
  change: Record<string, unknown>,
  next: (before: Changeable) => Change,
): Promise<string | undefined> {
  return db.transaction().execute(async (tx) => {
    const before = await tx
      .selectFrom('connections')
      .select(['settings', 'tags'])
      .where('id', '=', connectionId)
      .forUpdate()
      .executeTakeFirst();
    if (!before) return undefined;
    const { settings, tags, applyFilters, fullSync } = next(before);
    await tx
      .updateTable('connections')
      .set({ settings, ...(tags && { tags }), ...(applyFilters && requestFilters) })
      .where('id', '=', connectionId)
      .execute();
    await addEvent(tx, { kind: 'connection.changed', connectionId, data: change });
    await notify(tx, { connectionId });
    return fullSync ? request(tx, connectionId, 'full') : undefined;
  });
}
