import type { Connection, Database } from '../database/schema.ts';
import { addEvent, notify } from '../events/add-event.ts';

/** Changes the settings of a connection. With `applyFilters`, its filters are applied again. Undefined: it does not exist. */
export async function changeSettings(
  db: Database,
  connectionId: string,
  change: Record<string, unknown>,
  next: (before: Record<string, unknown>) => { settings: Record<string, unknown>; applyFilters: boolean },
): Promise<Connection | undefined> {
  return db.transaction().execute(async (tx) => {
    const before = await tx
      .selectFrom('connections')
      .select('settings')
      .where('id', '=', connectionId)
      .forUpdate()
      .executeTakeFirst();
    if (!before) return undefined;
    const { settings, applyFilters } = next(before.settings);
    const after = await tx
      .updateTable('connections')
      .set({ settings: JSON.stringify(settings) as never, ...(applyFilters && { filtersPending: true }) })
      .where('id', '=', connectionId)
      .returningAll()
      .executeTakeFirstOrThrow();
    await addEvent(tx, { kind: 'connection.changed', connectionId, data: change });
    await notify(tx, { connectionId });
    return after;
  });
}
