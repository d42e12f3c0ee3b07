import { notify } from './events.ts';
import type { Database } from './schema.ts';

/** What operators change while processes run. All of them are told. */
export function settings(db: Database) {
  return {
    /** Bytes per second and process; null: as each has it in its environment. */
    async bandwidth(): Promise<number | null> {
      const row = await db.selectFrom('settings').select('value').where('name', '=', 'bandwidth').executeTakeFirst();
      return typeof row?.value === 'number' ? row.value : null;
    },

    async setBandwidth(bytesPerSecond: number | null): Promise<void> {
      await db.transaction().execute(async (tx) => {
        if (bytesPerSecond === null) await tx.deleteFrom('settings').where('name', '=', 'bandwidth').execute();
        else {
          const value = JSON.stringify(bytesPerSecond);
          await tx
            .insertInto('settings')
            .values({ name: 'bandwidth', value })
            .onConflict((it) => it.column('name').doUpdateSet({ value }))
            .execute();
        }
        await notify(tx, { settings: true });
      });
    },
  };
}
