import { dayMs } from '../../floor/units.ts';
import type { Database } from '../database/schema.ts';
import { readSetting, saveSetting } from './settings.ts';

const nameOf = (store: string) => `checksums of ${store}`;

/** How an object store proves what it has stored. Forgotten after a day, because stores and settings change. */
export async function recall(db: Database, store: string): Promise<string | undefined> {
  const found = (await readSetting(db, nameOf(store))) as { proof: string; at: number } | undefined;
  // A clock that was ahead may have written a time in the future.
  return found && Math.abs(Date.now() - found.at) < dayMs ? found.proof : undefined;
}

export async function keep(db: Database, store: string, proof: string): Promise<void> {
  await saveSetting(db, nameOf(store), { proof, at: Date.now() });
}
