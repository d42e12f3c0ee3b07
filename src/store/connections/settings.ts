import type { Connection, Database } from '../database/schema.ts';
import { addEvent, notify } from '../events/add-event.ts';

type Changeable = Pick<Connection, 'settings' | 'tags'>;

/**
 * Changes the settings and tags of a connection. With `applyFilters`, its filters are applied again. Undefined: it does not
 * exist.
 */
export async function changeSettings(
  db: Database,
  connectionId: string,
  change: Record<string, unknown>,
  next: (before: Changeable) => Pick<Changeable, 'settings'> & Partial<Changeable> & { applyFilters: boolean },
): Promise<Connection | undefined> {
  return db.transaction().execute(async (tx) => {
    const before = await tx
      .selectFrom('connections')
      .select(['settings', 'tags'])
      .where('id', '=', connectionId)
      .forUpdate()
      .executeTakeFirst();
    if (!before) return undefined;
    const { settings, tags, applyFilters } = next(before);
    const after = await tx
      .updateTable('connections')
      .set({ settings, ...(tags && { tags }), ...(applyFilters && { filtersPending: true }) })
      .where('id', '=', connectionId)
      .returningAll()
      .executeTakeFirstOrThrow();
    await addEvent(tx, { kind: 'connection.changed', connectionId, data: change });
    await notify(tx, { connectionId });
    return after;
  });
}
