import type { Log } from '../../floor/log.ts';
import { type ChoreDeps, startChore } from '../../queue/chore.ts';
import { auditKey } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import { toAuditEntry } from '../../store/operators/audit-entry.ts';
import type { Store } from '../../store/store.ts';
import { putLines } from './put-lines.ts';
import { unusedObjectKey } from './unused-object-key.ts';

export interface WriteAuditLogDeps {
  store: Pick<Store, 'audit'>;
  storage: Storage;
  log: Log;
}

const everyMs = 10 * 60_000;
const pageSize = 1000;

/** Writes the audit log of each day (UTC) into the bucket, soon after its end. One process at a time does so. */
export function startWritingAuditLog(deps: WriteAuditLogDeps & ChoreDeps) {
  const failed = (err: unknown) =>
    deps.log.warn({ event: 'audit.write_failed', err }, 'audit log of a day not written, will retry');
  return startChore(deps, { name: 'audit', everyMs, failed }, (signal) => writeAuditLog(deps, signal));
}

/** Writes all days that are over, have entries, and are not written yet. Returns how many. */
export async function writeAuditLog(deps: WriteAuditLogDeps, signal: AbortSignal): Promise<number> {
  const { store, storage, log } = deps;
  for (let files = 0; ; files++) {
    signal.throwIfAborted();
    const day = await store.audit.nextDay();
    if (day === undefined) return files;
    // After a restored backup, the database may have fewer entries than the file of that day: it is never overwritten.
    const key = await unusedObjectKey(storage, (number) => auditKey(day, number));
    const bytes = await putLines(storage, key, entriesOf(store, day), { signal });
    await store.audit.dayWritten(day);
    log.info({ event: 'audit.written', key, bytes }, 'audit log of a day written');
  }
}

async function* entriesOf(store: WriteAuditLogDeps['store'], day: string) {
  for (let after = 0; ; ) {
    const page = await store.audit.ofDay(day, after, pageSize);
    yield* page.map(toAuditEntry);
    if (page.length < pageSize) return;
    after = page.at(-1)!.id;
  }
}
